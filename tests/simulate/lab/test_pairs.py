"""Pair tests by real agents over real links: a dead link between two machines only, and a link that is slow in one direction."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from minder.app.pairing import PairMachine, PairOptions, pair_test
from minder.simulate.lab.capabilities import find_capabilities
from minder.simulate.lab.lab import Lab
from minder.simulate.lab.machine import LabMachine
from minder.wire.client import Endpoint, MachineEndpoints
from minder.wire.tokens import read_token, write_token

PORT = 9401
SLOW_BIT = 40_000_000


@pytest.mark.lab
@pytest.mark.root
def test_a_dead_link_and_a_machine_that_sends_slowly_are_named_and_nothing_else(
    make_lab: Callable[..., Lab], tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    if os.geteuid() != 0 or find_capabilities().refused:
        pytest.skip(f"needs root and namespaces: {find_capabilities().refused}")
    token_file = tmp_path / "token"
    write_token(token_file)
    with make_lab(6, mode="namespaces") as lab:
        for machine in lab.machines:
            lab.start_agent(machine, token_file, PORT, ["--gpu", "off"])
        wait_until(lambda: all(answers(machine.address) for machine in lab.machines), 60.0)
        assert lab.network is not None
        lab.network.drop_between("m0", lab.machines[1].data_address)
        lab.network.slow_what_it_sends("m3", SLOW_BIT)
        asked = [item_of(machine, token_file) for machine in lab.machines]
        graph = pair_test(asked, options=PairOptions(generation=1, collective=False, limit_s=30.0))
        names = [machine.name for machine in lab.machines]
        assert graph.links == ((names[0], names[1]),), graph
        assert graph.slow == (names[3],) and graph.faulty == (), graph
        (node,) = [node for node in graph.nodes if node.state == "slow"]
        assert node.reason.startswith("in what it sends"), node
        assert {edge.round for edge in graph.edges} == {1, 2} and len(graph.edges) == 7
        dead = next(edge for edge in graph.edges if edge.blamed)
        assert "no contact" in dead.detail


def item_of(machine: LabMachine, token_file: Path) -> PairMachine:
    endpoint = Endpoint(f"http://{machine.address}:{PORT}", read_token(token_file))
    return PairMachine(MachineEndpoints(machine.name, endpoint, None), machine.data_address)


def answers(host: str, port: int = PORT) -> bool:
    try:
        with socket.create_connection((host, port), 0.3):
            return True
    except OSError:
        return False
