"""Pair tests of a job's machines: planned in rounds, ordered on both machines of each pair at once, judged, and written down."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minder.app.probing import ProbedMachine, ask_machine, orders_of
from minder.diagnose.diagnostics.pairs import PairResult, PairTest, judge_pairs, plan_first_round, plan_second_round
from minder.edge.probes.pair import BLOCK_BYTES
from minder.edge.probes.pair_order import PairOrder
from minder.model.errors import BadInputError
from minder.model.pairs import PairGraph
from minder.model.probes import ProbeResult
from minder.record.incidents import kinds
from minder.record.incidents.ledger import Ledger
from minder.record.incidents.pairs import pairs_payload
from minder.wire.client import MachineClient, MachineEndpoints
from minder.wire.plain import PlainHttp

__all__ = ["PairMachine", "PairOptions", "job_address", "join_sides", "pair_test", "record_pairs", "run_pairs"]

_MOST_ROUNDS = 4
_PORTS = (20000, 30000)  # below those that the kernel hands out
_BROKEN = ("not_judged", "not_applicable")


@dataclass(frozen=True, slots=True)
class PairMachine:
    """A machine to test. address: its own on the network of the job."""

    endpoints: MachineEndpoints
    address: str


@dataclass(frozen=True, slots=True)
class PairOptions:
    """generation: of the job. port: where one of each pair listens; a random one of 20000 to 29999 for each test, if not given. force:
    although ranks of the job run. collective: with an all-gather, where both have torch. limit_s: of each test; a third of it is waited for
    the peer, 15 s at most; the probe's own limit, if not given."""

    generation: int = 0
    port: int | None = None
    force: bool = False
    collective: bool = True
    limit_s: float | None = None


def job_address(endpoints: MachineEndpoints, given: str | None) -> str:
    """Where the others reach the machine: as its configuration says (`job_address`), else the host of its launcher or agent, as an address.
    Raises BadInputError where a name leads nowhere."""
    known = endpoints.launcher or endpoints.agent
    host = given or (urllib.parse.urlsplit(known.url).hostname if known is not None else None)
    if not host:
        raise BadInputError(f"{endpoints.machine} has no address: give job_address in its [[machines]]")
    try:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise BadInputError(f"{endpoints.machine}: {host} is no address ({error.strerror}): give job_address in its [[machines]]") from None


def pair_test(
    machines: Sequence[PairMachine], domains: Mapping[str, Mapping[str, str]] | None = None, options: PairOptions | None = None,
    tls: ssl.SSLContext | None = None,
) -> PairGraph:  # fmt: skip
    """All rounds, one after the other. domains: machine to what it hangs on ({"switch": ...}). A machine that is silent or refuses is in
    the graph, not judged. Raises BadInputError for fewer than two machines."""
    return asyncio.run(run_pairs(machines, domains, options, tls))


async def run_pairs(
    machines: Sequence[PairMachine], domains: Mapping[str, Mapping[str, str]] | None = None, options: PairOptions | None = None,
    tls: ssl.SSLContext | None = None,
) -> PairGraph:  # fmt: skip
    """As `pair_test`, in a loop that runs already."""
    planned, results = plan_first_round([item.endpoints.machine for item in machines], domains), list[PairResult]()
    with contextlib.closing(PlainHttp(tls)) as http:
        sides = {item.endpoints.machine: _Side(MachineClient(item.endpoints, http), item.address) for item in machines}
        for _ in range(_MOST_ROUNDS):
            for wave in sorted({test.wave for test in planned}):
                at_once = (_run_test(test, sides, options or PairOptions()) for test in planned if test.wave == wave)
                results += await asyncio.gather(*at_once)
            planned = plan_second_round(results, domains)
            if not planned:
                break
        for test in _blamed(results, domains):  # a link is to blame that is bad twice: one test may meet a busy moment
            again = await _run_test(test, sides, options or PairOptions())
            results = [again if found.test == test and again.passed is not None else found for found in results]
    return judge_pairs(results, domains)


def _blamed(results: Sequence[PairResult], domains: Mapping[str, Mapping[str, str]] | None) -> list[PairTest]:
    """The tests of links that are to blame as it stands."""
    graph = judge_pairs(results, domains)
    return [found.test for found, edge in zip(results, graph.edges, strict=True) if edge.blamed]


@dataclass(frozen=True, slots=True)
class _Side:
    client: MachineClient
    address: str


async def _run_test(test: PairTest, sides: Mapping[str, _Side], options: PairOptions) -> PairResult:
    """Both orders at once, with one secret that is used never again."""
    first, second = (sides[machine] for machine in test.machines)
    port = options.port or _PORTS[0] + secrets.randbelow(_PORTS[1] - _PORTS[0])
    shared = (port, options.generation, secrets.token_hex(32))

    def order(side: _Side, peer: _Side, listens: bool) -> list[dict[str, object]]:
        (probe,) = orders_of(("pair",))
        pair = PairOrder(side.address, peer.address, shared[0], "listen" if listens else "connect", *shared[1:], options.collective)
        return [{**probe, "pair": pair.options()} | ({} if options.limit_s is None else {"limit_s": options.limit_s})]

    asked = (
        ask_machine(first.client, order(first, second, True), options.force),
        ask_machine(second.client, order(second, first, False), options.force),
    )
    return join_sides(test, *await asyncio.gather(*asked))


def join_sides(test: PairTest, listener: ProbedMachine, caller: ProbedMachine) -> PairResult:
    """What the two of a test said, as one result. A side that could not take part makes it a test that was not run: what the other side
    found of it is then nothing of the link."""
    absent = [f"{side.machine}: {why}" for side in (listener, caller) if (why := _absence(side))]
    if absent:
        return PairResult(test, None, detail="; ".join(absent))
    one, two = listener.results[0], caller.results[0]
    faults = [f"{side.machine}: {found.detail}" for side, found in ((listener, one), (caller, two)) if found.state == "failed"]
    forward, backward = _value(one, "pair_send_bandwidth"), _value(one, "pair_receive_bandwidth")
    rates = [rate for rate in (forward, backward) if rate]
    latency = [value for name in ("pair_send_latency", "pair_receive_latency") if (value := _value(one, name)) is not None]
    if faults or len(rates) < 2:
        return PairResult(test, False, detail="; ".join(faults), forward_bytes_per_s=forward, backward_bytes_per_s=backward)
    return PairResult(test, True, BLOCK_BYTES / min(rates), min(rates), max(latency, default=None), "", forward, backward)


def _absence(side: ProbedMachine) -> str:
    """Why it took no part, "" if it did."""
    if side.refused or not side.results:
        return side.refused or "no answer"
    return side.results[0].detail or "the probe said nothing" if side.results[0].state in _BROKEN else ""


def _value(found: ProbeResult, name: str) -> float | None:
    return next((item.value for item in found.measures if item.name == name), None)


def record_pairs(
    ledger: Ledger, graph: PairGraph, *, by: str, why: str, job: str | None, incident: str | None = None, note: str = ""
) -> None:
    """The graph, in the incident where there is one. Raises LedgerError."""
    ledger.append(kinds.PAIRS, pairs_payload(graph, by=by, why=why, note=note), job=job, incident=incident)
