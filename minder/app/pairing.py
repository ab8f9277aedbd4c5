"""Pair tests of a job's machines: planned in rounds, ordered on both machines of each pair at once, judged, and written down."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minder.app.probing import ProbedMachine, ask_machine, orders_of
from minder.diagnose.diagnostics.pair_sides import Side, blamed_tests, join_sides, replaced
from minder.diagnose.diagnostics.pairs import PairResult, PairTest, judge_pairs, plan_first_round, plan_second_round
from minder.edge.probes.pair_order import new_meeting
from minder.model.errors import BadInputError
from minder.model.pairs import PairGraph
from minder.record.incidents import kinds
from minder.record.incidents.ledger import Ledger
from minder.record.incidents.pairs import pairs_payload
from minder.wire.client import MachineClient, MachineEndpoints
from minder.wire.plain import PlainHttp

__all__ = ["PairMachine", "PairOptions", "job_address", "pair_test", "record_pairs", "run_pairs"]

_MOST_ROUNDS = 4


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
        for test in blamed_tests(results, domains):
            results = replaced(results, await _run_test(test, sides, options or PairOptions()))
    return judge_pairs(results, domains)


@dataclass(frozen=True, slots=True)
class _Side:
    client: MachineClient
    address: str


async def _run_test(test: PairTest, sides: Mapping[str, _Side], options: PairOptions) -> PairResult:
    """Both orders at once, with one secret that is used never again."""
    first, second = (sides[machine] for machine in test.machines)
    meeting = new_meeting((first.address, second.address), options.generation, options.port, options.collective)
    (probe,) = orders_of(("pair",))
    limit = {} if options.limit_s is None else {"limit_s": options.limit_s}
    asked = (
        ask_machine(side.client, [{**probe, "pair": pair.options(), **limit}], options.force)
        for side, pair in zip((first, second), meeting, strict=True)
    )
    listener, caller = await asyncio.gather(*asked)
    return join_sides(test, _said(listener), _said(caller))


def _said(machine: ProbedMachine) -> Side:
    return machine.refused or (machine.results[0] if machine.results else "no answer")


def record_pairs(
    ledger: Ledger, graph: PairGraph, *, by: str, why: str, job: str | None, incident: str | None = None, note: str = ""
) -> None:
    """The graph, in the incident where there is one. Raises LedgerError."""
    ledger.append(kinds.PAIRS, pairs_payload(graph, by=by, why=why, note=note), job=job, incident=incident)
