"""TCP over the machine's own loopback: bandwidth and round trip. It crosses no cable: what is slow here is the host, not the network."""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Mapping
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.hardware import cpu_facts, kernel_facts
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["PROBE", "measure"]

PROBE = Probe(
    name="loopback",
    version=1,
    says="bandwidth and round trip of TCP over loopback",
    limit_s=20.0,
    measures={"loopback_bandwidth": "B/s, one stream", "loopback_round_trip": "s, median of one byte there and back"},
    source="MegaScale's loopback test",
)

_BLOCK_BYTES = 1 << 20
_ROUNDS = 200


def measure(options: Mapping[str, Any]) -> Finding:
    """options: seconds (1.0)."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as ours:
        theirs, _ = server.accept()
        with theirs:
            for end in (ours, theirs):
                end.settimeout(10.0)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            round_trip_s = _round_trip(ours, theirs)
            rate = _bandwidth(ours, theirs, float(options.get("seconds", 1.0)))
    measures = (
        Measurement("loopback_bandwidth", rate, "B/s", "higher"),
        Measurement("loopback_round_trip", round_trip_s, "s", "lower", tolerance=50e-6),
    )
    return Finding("measured", "", measures, {**cpu_facts(), **kernel_facts()})


def _round_trip(ours: socket.socket, theirs: socket.socket) -> float:
    echo = threading.Thread(target=_echo, args=(theirs, _ROUNDS))
    echo.start()
    found = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        ours.sendall(b"x")
        ours.recv(1)
        found.append(time.perf_counter() - begun)
    echo.join()
    return statistics.median(found)


def _echo(end: socket.socket, rounds: int) -> None:
    for _ in range(rounds):
        end.sendall(end.recv(1))


def _bandwidth(ours: socket.socket, theirs: socket.socket, seconds: float) -> float:
    """What has arrived per second, until the sender is done."""
    arrived: list[int] = []
    sink = threading.Thread(target=_drain, args=(theirs, arrived))
    sink.start()
    block, begun = bytes(_BLOCK_BYTES), time.perf_counter()
    while time.perf_counter() - begun < seconds:
        ours.sendall(block)
    ours.shutdown(socket.SHUT_WR)
    sink.join()
    return sum(arrived) / (time.perf_counter() - begun)


def _drain(end: socket.socket, arrived: list[int]) -> None:
    buffer = bytearray(_BLOCK_BYTES)
    while size := end.recv_into(buffer):
        arrived.append(size)


if __name__ == "__main__":
    run(PROBE, measure)
