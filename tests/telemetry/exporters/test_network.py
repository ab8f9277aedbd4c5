"""Interfaces: which count, what is told when they go up and down; real ones in a network namespace of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from minder.edge.exporters import network
from minder.edge.exporters.network import NetworkExporter, choose_interfaces
from minder.edge.exporters.nic import pick_statistics, read_statistics
from minder.edge.exporters.rtnetlink import Interface, list_interfaces, read_interfaces


def _interface(name: str, kind: str = "", state: str = "up", changes: int = 1, received: int = 0) -> Interface:
    return Interface(hash(name) % 1000, name, kind, name == "lo", state, received, 0, 0, changes)


def test_hardware_counts_where_there_is_any() -> None:
    found = [_interface("lo"), _interface("ib0"), _interface("eth0"), _interface("docker0", "bridge"), _interface("veth1", "veth")]
    assert [item.name for item in choose_interfaces(found)] == ["ib0", "eth0"]
    assert [item.name for item in choose_interfaces([found[0], *found[3:]])] == ["docker0", "veth1"]
    assert [item.name for item in choose_interfaces(found, ["lo", "veth1"])] == ["lo", "veth1"]


def _play(monkeypatch: pytest.MonkeyPatch, *scenes: list[Interface]) -> list[tuple[str | None, str]]:
    """The (device, state) of all signals while the interfaces look like each scene in turn."""
    exporter = NetworkExporter("m1")
    states: list[tuple[str | None, str]] = []
    for second, scene in enumerate(scenes):
        monkeypatch.setattr(network, "list_interfaces", lambda scene=scene: scene)
        monkeypatch.setattr(network, "read_interfaces", lambda indexes, scene=scene: scene)
        states += [(item.device, item.data["state"]) for item in exporter.read(float(second)).signals]
    return states


def test_a_link_that_goes_down_and_up(monkeypatch: pytest.MonkeyPatch) -> None:
    scenes = [[_interface("eth0", state=state)] for state in ("up", "lowerlayerdown", "down", "up")]
    assert _play(monkeypatch, *scenes) == [("eth0", "down"), ("eth0", "up")]


def test_a_flap_between_two_looks_is_remembered_by_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _play(monkeypatch, [_interface("eth0", changes=2)], [_interface("eth0", changes=4)]) == [("eth0", "down"), ("eth0", "up")]


def test_an_interface_that_vanishes_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    both, one = [_interface("eth0"), _interface("eth1")], [_interface("eth0")]
    assert _play(monkeypatch, both, one, one) == [("eth1", "down")]


def test_the_loopback_of_this_machine() -> None:
    (lo,) = [item for item in list_interfaces() if item.name == "lo"]
    assert lo.loopback and lo.kind == ""
    assert [item.name for item in read_interfaces([lo.index, 2**30])] == ["lo"]
    assert set(NetworkExporter("m1", ["lo"]).read(1.0).counters) == {("tcp_receive_bytes", "lo"), ("tcp_transmit_bytes", "lo")}
    assert read_statistics("lo") == {}


def test_driver_statistics_of_several_makes() -> None:
    mellanox = {
        "tx_prio3_pause": 7,
        "tx_prio4_pause": 1,
        "tx_prio3_pause_duration": 9000,
        "rx_prio3_pause": 5,
        "rx_ecn_mark": 4,
        "rx_bytes": 1,
    }
    assert pick_statistics(mellanox) == {"pfc_tx_packets": {"tx_prio3_pause": 7, "tx_prio4_pause": 1}, "ecn_packets": {"rx_ecn_mark": 4}}
    assert pick_statistics({"tx_pfc_ena_frames_pri3": 2}) == {"pfc_tx_packets": {"tx_pfc_ena_frames_pri3": 2}}
    assert pick_statistics({"rx_bytes": 1}) == {}


@pytest.fixture
def namespace() -> Iterator[str]:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and iproute2")
    name = f"mtest-{uuid.uuid4().hex[:6]}"
    if subprocess.run(["ip", "netns", "add", name], check=False).returncode != 0:
        pytest.skip("network namespaces cannot be made here")
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.root
def test_the_agents_own_namespace_counts(namespace: str) -> None:
    """/sys is the host's even inside the namespace: netlink is not fooled."""
    for command in ("link add d0 type veth peer name d1", "link set d0 up", "link set d1 up"):
        subprocess.run(["ip", "-n", namespace, *command.split()], check=True)
    code = """
import subprocess, time
from minder.edge.exporters.network import NetworkExporter
exporter = NetworkExporter("m1")
print(sorted({device for _, device in exporter.read(1.0).counters}))
subprocess.run(["ip", "link", "set", "d1", "down"], check=True)
time.sleep(0.3)
print(sorted((signal.device, signal.data["state"]) for signal in exporter.read(2.0).signals))
"""
    command = ["nsenter", f"--net=/var/run/netns/{namespace}", sys.executable, "-c", code]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert out == ["['d0', 'd1']", "[('d0', 'down'), ('d1', 'down')]"]
