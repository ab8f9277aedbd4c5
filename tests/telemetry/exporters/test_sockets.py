"""Real connections through NETLINK_SOCK_DIAG, in this process."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator

import pytest

from minder.edge.exporters.flows import FlowExporter
from minder.edge.exporters.inet_diag import dump_connections
from minder.edge.exporters.jobs import JobProcess

ME = [JobProcess(os.getpid(), "j", 0)]


@pytest.fixture(params=["127.0.0.1", "::1", "mapped"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    """(talker, silent listener's end), by IPv4, IPv6, and IPv4 on an IPv6 socket (as torch's store listens)."""
    family = socket.AF_INET if request.param == "127.0.0.1" else socket.AF_INET6
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        if request.param == "mapped":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((request.param if request.param != "mapped" else "::", 0))
    except OSError:
        pytest.skip("no IPv6 here")
    listener.listen()
    target = "127.0.0.1" if request.param == "mapped" else request.param
    talker = socket.create_connection((target, listener.getsockname()[1]))
    silent, _ = listener.accept()
    with listener, talker, silent:
        yield talker, silent


def _inode(handle: socket.socket) -> int:
    return os.fstat(handle.fileno()).st_ino


def test_queues_and_totals_of_both_ends(pair: tuple[socket.socket, socket.socket]) -> None:
    talker, silent = pair
    talker.sendall(b"x" * 1234)
    time.sleep(0.05)
    found, seen = dump_connections({_inode(talker), _inode(silent)})
    by_inode = {item.inode: item for item in found}
    assert by_inode.keys() == {_inode(talker), _inode(silent)} <= seen
    sender, receiver = by_inode[_inode(talker)], by_inode[_inode(silent)]
    assert receiver.receive_queue_bytes == receiver.bytes_received == 1234
    assert sender.send_queue_bytes == 0 and sender.bytes_acked >= 1234
    assert sender.local == receiver.remote and sender.remote == receiver.local
    assert sender.last_send_age_s < 5 and 0 < sender.round_trip_s < 1
    assert silent.recv(4096)
    assert dump_connections({_inode(silent)})[0][0].receive_queue_bytes == 0


def test_a_full_pipe_shows_at_the_sender(pair: tuple[socket.socket, socket.socket]) -> None:
    talker, _silent = pair
    talker.setblocking(False)
    try:
        while True:
            talker.send(b"x" * 65536)
    except BlockingIOError:
        pass
    exporter = FlowExporter("m")
    gauges = exporter.read(ME, 1.0).gauges
    assert gauges["tcp_receive_queue_bytes", None] > 10_000
    assert gauges["tcp_send_queue_bytes", None] > 10_000
    flows = {flow.local: flow for flow in exporter.flows(ME, 2.0)}
    host, port = talker.getsockname()[:2]
    name = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    assert flows[name].send_queue_bytes > 10_000
    assert 10_000 < flows[name].unsent_bytes <= flows[name].send_queue_bytes, "the window is closed: what waits has not left"
    assert all(flow.pid == os.getpid() and flow.machine == "m" and flow.time_s == 2.0 for flow in flows.values())


def test_a_new_connection_is_found_and_others_sockets_are_not(pair: tuple[socket.socket, socket.socket]) -> None:
    exporter = FlowExporter("m")
    stranger = [JobProcess(os.getppid(), "j", 0)]
    before = len(exporter.flows(ME, 1.0))
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()):
        now_s = 100.0
        exporter.read(ME, now_s)
        assert len(exporter.flows(ME, now_s)) == before + 1
    ours = {flow.local for flow in exporter.flows(ME, 101.0)}
    assert not ours & {flow.local for flow in FlowExporter("m").flows(stranger, 101.0)}


def test_no_job_has_no_connections() -> None:
    assert len(FlowExporter("m").read([], 1.0)) == 0
