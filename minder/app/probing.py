"""Probes of machines, asked of their agents or run here, judged beside the ledger's past, and written into it."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.diagnose.diagnostics.judgement import judge_machines
from minder.edge.probes.contract import ALONE, find_programs
from minder.edge.probes.orders import Run, run_programs
from minder.model.errors import BadInputError, WireError
from minder.model.history import LedgerEvent
from minder.model.probes import ProbeJudgement, ProbeResult
from minder.record.incidents import kinds
from minder.record.incidents.joins import agent_addresses
from minder.record.incidents.ledger import Ledger
from minder.record.incidents.probes import ProbeRun, past_results, probes_payload
from minder.wire.client import Endpoint, MachineClient, MachineEndpoints
from minder.wire.codec import from_json
from minder.wire.plain import PlainHttp

__all__ = [
    "ProbedMachine",
    "ask_machine",
    "ask_machines",
    "chosen_probes",
    "find_endpoint",
    "judge_all",
    "orders_of",
    "ranks_that_run",
    "record",
    "run_here",
]

_WAIT_S = 20.0
_PATIENCE_S = 30.0  # so long may an agent be silent in between
_ASK_S = 3.0
_CLOCK_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class ProbedMachine:
    """One machine's results; refused: why there are none, one line."""

    machine: str
    results: tuple[ProbeResult, ...] = ()
    refused: str = ""


def chosen_probes(text: str | None) -> tuple[str, ...]:
    """Names out of "disk,gemm"; all that one machine runs by itself where none are named. Raises BadInputError for what is no probe."""
    names = tuple(dict.fromkeys((text or "").replace(",", " ").split()))
    if "pair" in names:
        raise BadInputError("the probe pair needs two machines: `minder job diagnose NAME --pairs` runs it")
    return tuple(find_programs(names or ALONE))


def find_endpoint(events: Sequence[LedgerEvent], machine: str, token: Callable[[str], str]) -> MachineEndpoints:
    """A machine's agent as a job registered it last, in the order of the ledger. token: of the job's agents. Raises BadInputError."""
    for event in reversed(events):
        url = agent_addresses(event).get(machine)
        if url is not None:
            return MachineEndpoints(machine, Endpoint(url, token(str(event.job))), None)
    raise BadInputError(f'no job in the ledger has a machine "{machine}" with an agent: give --agent URL, or --config job.toml')


def run_here(names: Sequence[str], folder: Path | None = None, done: Callable[[ProbeResult], None] = lambda result: None) -> ProbedMachine:
    """This machine, without an agent."""
    programs = find_programs(tuple(names))
    options = {} if folder is None else {"folder": str(folder)}
    results = asyncio.run(run_programs([Run(program) for program in programs.values()], options, done=done))
    return ProbedMachine(platform.node(), tuple(results))


def ask_machines(
    endpoints: Iterable[MachineEndpoints], names: Sequence[str], *, force: bool = False, tls: ssl.SSLContext | None = None
) -> dict[str, ProbedMachine]:
    """Machine to what its agent said, or its launcher where no agent is given, all at once. Nothing raises for a machine that does not
    answer: that is said in its place."""

    async def ask_all() -> list[ProbedMachine]:
        with contextlib.closing(PlainHttp(tls)) as http:
            return await asyncio.gather(*(ask_machine(MachineClient(item, http), orders_of(names), force) for item in endpoints))

    return {found.machine: found for found in asyncio.run(ask_all())}


def orders_of(names: Sequence[str]) -> list[dict[str, Any]]:
    """Each probe by its id and hash, as an order names it."""
    return [{"id": name, "sha256": program.sha256} for name, program in find_programs(tuple(names)).items()]


async def ask_machine(client: MachineClient, orders: Sequence[Mapping[str, Any]], force: bool) -> ProbedMachine:
    """What its agent (its launcher, where no agent is given) said of these orders at the end; it raises nothing for a machine that is
    silent or refuses."""
    body: dict[str, Any] = {"operation": f"probes-{uuid.uuid4().hex[:12]}", "force": force}
    try:
        body |= await _read_clock(client)
        answer = await _await_end(client, {**body, "probes": list(orders)})
        if answer.get("state") != "done":
            return ProbedMachine(client.machine, refused=str(answer.get("detail") or answer.get("state")))
        return ProbedMachine(client.machine, from_json(tuple[ProbeResult, ...], answer.get("results")))
    except WireError as error:
        return ProbedMachine(client.machine, refused=str(error))


async def _await_end(client: MachineClient, body: dict[str, Any]) -> Mapping[str, Any]:
    """The agent knows the operation by its name: an answer that was lost is asked for again. Raises WireError."""
    heard_s = time.monotonic()
    while True:
        try:
            answer = await client.probes({**body, "controller_time_s": time.time()}, _WAIT_S)
            heard_s = time.monotonic()
        except WireError as error:
            if "HTTP 4" in str(error) or time.monotonic() - heard_s > _PATIENCE_S:
                raise
            await asyncio.sleep(1.0)
            continue
        if answer.get("state") != "running":
            return answer


async def _read_clock(client: MachineClient) -> dict[str, float]:
    """How well the other clock is known. The order opens a connection, so that it is under way for one and a half round trips: three of
    them are what the clock probe halves. Our time itself is put into the order when it goes."""
    trips = []
    for _ in range(_CLOCK_ROUNDS):
        answer = await (client.health(_ASK_S) if client.has_agent else client.state(_ASK_S))
        trips.append(float(answer["_received_s"]) - float(answer["_sent_s"]))
    return {"round_trip_s": 3.0 * max(0.0, min(trips))}


def ranks_that_run(endpoints: Iterable[MachineEndpoints], job: str, tls: ssl.SSLContext | None = None) -> dict[str, list[int]]:
    """Machine to the ranks of the job that its agent sees there; a machine whose agent does not answer is left out."""

    async def look(client: MachineClient) -> tuple[str, list[int]]:
        try:
            answer = await client.signals(0, 0.0)
        except WireError:
            return client.machine, []
        rows = [row for row in answer.get("processes") or () if isinstance(row, dict) and row.get("job") == job]
        return client.machine, sorted(row["rank"] for row in rows if isinstance(row.get("rank"), int))

    async def look_all() -> dict[str, list[int]]:
        with contextlib.closing(PlainHttp(tls)) as http:
            return dict(await asyncio.gather(*(look(MachineClient(item, http)) for item in endpoints)))

    return {machine: ranks for machine, ranks in asyncio.run(look_all()).items() if ranks}


def judge_all(tested: Mapping[str, ProbedMachine], past: Sequence[ProbeRun]) -> dict[str, list[ProbeJudgement]]:
    """Machine to the judgement of each of its probes, in the order in which they ran."""
    return judge_machines({machine: item.results for machine, item in tested.items()}, lambda name: past_results(past, name))


def record(
    ledger: Ledger, tested: Mapping[str, ProbedMachine], judged: Mapping[str, Sequence[ProbeJudgement]], *, by: str, why: str,
    job: str | None, note: str = "",
) -> None:  # fmt: skip
    """One event for each machine that measured anything. Raises LedgerError."""
    for machine, item in tested.items():
        if item.results:
            ledger.append(kinds.PROBES, probes_payload(machine, item.results, judged[machine], by=by, why=why, note=note), job=job)
