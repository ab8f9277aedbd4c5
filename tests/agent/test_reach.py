"""Which peers can be reached: real connections and handshakes on this machine's loopback addresses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Iterator

import pytest

from minder.edge.agent.capture import parse_request
from minder.edge.agent.reach import try_peers
from minder.edge.exporters.flows import FlowExporter
from minder.edge.exporters.jobs import JobProcess
from minder.model.errors import BadInputError
from minder.model.telemetry import ConnectivityProbe

ME = [JobProcess(os.getpid(), "j", 0)]


@pytest.fixture
def pair() -> Iterator[None]:
    """A connection of this process between two addresses, as between two machines."""
    try:
        listener = socket.create_server(("127.0.0.3", 0))
    except OSError:
        pytest.skip("no second loopback address here")
    with listener, socket.create_connection(listener.getsockname(), source_address=("127.0.0.2", 0)):
        yield


def tried(limit_s: float = 5.0) -> list[ConnectivityProbe]:
    return asyncio.run(try_peers("m0", ME, time.monotonic() + limit_s))


@pytest.mark.usefixtures("pair")
def test_a_refusal_is_an_answer() -> None:
    ends = [(item.machine, item.local, item.remote, item.reached) for item in tried() if item.remote == "127.0.0.3"]
    assert ends == [("m0", "127.0.0.2", "127.0.0.3", True)]


def test_without_a_connection_of_the_job_nothing_is_tried() -> None:
    assert asyncio.run(try_peers("m0", [], time.monotonic() + 5)) == []


def test_a_machine_that_only_listens_says_which_address_is_its_own() -> None:
    """Before the first step it may have no connection: its peers try an address that no other row has."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(socket.create_server(("127.0.0.4", 0)))
        except OSError:
            pytest.skip("no second loopback address here")
        stack.enter_context(socket.create_server(("0.0.0.0", 0)))
        stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        own = [(item.local, item.remote, item.reached) for item in tried() if item.local == item.remote]
    assert own == [("127.0.0.4", "127.0.0.4", True)]


def test_addresses_that_the_controller_names_are_tried_beside_those_of_connections() -> None:
    """Ranks that meet one after the other all wait for the same machine: none of them has tried any other."""
    try:
        listener = socket.create_server(("127.0.0.3", 0))
    except OSError:
        pytest.skip("no second loopback address here")
    with listener, socket.create_connection(listener.getsockname(), source_address=("127.0.0.2", 0)):
        found = asyncio.run(try_peers("m0", ME, time.monotonic() + 5.0, ("127.0.0.3", "127.0.0.9")))
        assert sorted((item.remote, item.reached) for item in found) == [("127.0.0.3", True), ("127.0.0.9", True)]
        assert asyncio.run(try_peers("m0", [], time.monotonic() + 5.0, ("127.0.0.9",))) == [], "only for a job"


@pytest.mark.parametrize("peers", ["10.0.0.1", ["node-1"], [["10.0.0.1"]], ["10.0.0.1"] * 65, {"a": 1}])
def test_peers_are_ip_addresses(peers: object) -> None:
    with pytest.raises(BadInputError, match="a list of at most 64 IP addresses"):
        parse_request({"what": ["reach"], "peers": peers})


def test_it_is_never_done_without_being_asked_for_by_name() -> None:
    assert "reach" not in parse_request({}).what
    assert parse_request({"what": ["reach"]}).what == ("reach",)


def test_a_peer_that_does_not_answer_while_a_connection_is_opened_is_tried() -> None:
    """A listener whose queue is full drops what comes: the connection stays half open, as to a machine whose link is dead."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        try:
            listener.bind(("127.0.0.3", 0))
        except OSError:
            pytest.skip("no second loopback address here")
        listener.listen(0)
        for _ in range(4):
            opening = stack.enter_context(socket.socket())
            opening.bind(("127.0.0.4", 0))
            opening.setblocking(False)
            opening.connect_ex(listener.getsockname())
        opened = FlowExporter("m0").opening(ME, time.time())
        assert {item.remote for item in opened} == {"127.0.0.3:" + str(listener.getsockname()[1])}
        assert ("127.0.0.4", "127.0.0.3") in {(item.local, item.remote) for item in tried()}
