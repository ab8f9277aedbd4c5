"""Orders of probes at an agent or a launcher: parsed, refused in one line, or run one after the other, once per operation.

A probe is ordered by its id and the SHA-256 of its source file: the caller chooses among the tests that this machine already has, and gets
the very one that is meant, or a refusal. Nothing that comes over the network is run.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from minder.edge.probes.contract import PROBES, Program, find_programs
from minder.edge.probes.pair_order import PairOrder, parse_pair
from minder.edge.probes.replay_order import ReplayOrder, parse_replay
from minder.edge.probes.runner import run_probe
from minder.edge.probes.settings import restore, save
from minder.model.errors import BadInputError
from minder.model.log import event
from minder.model.probes import ProbeResult
from minder.wire.codec import to_json

__all__ = ["OperationRun", "ProbeOrder", "ProbeRequest", "Probing", "Run", "parse_probes", "refusal", "run_programs"]

_log = logging.getLogger("minder.probes")
_KEPT = 100
_LONGEST_WAIT_S = 50.0
_LOW_PRIORITY = 10
_HASH = re.compile(r"[0-9a-f]{64}")
_EXAMPLE = '{"operation": "probes-1", "probes": [{"id": "disk", "sha256": "..."}], "wait_s": 20}'


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """limit_s: less than the probe's own, if given. pair: of the probe `pair`, and of no other; replay: of `replay`."""

    name: str
    sha256: str
    limit_s: float | None = None
    pair: PairOrder | None = None
    replay: ReplayOrder | None = None

    def options(self) -> dict[str, Any]:
        """What only this probe gets."""
        found: dict[str, Any] = {} if self.pair is None else {"pair": self.pair.options()}
        return found if self.replay is None else {**found, "replay": self.replay.options()}


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """operation: its name in the ledger. wait_s: how long the caller waits. force: also beside a job, at low priority. beside: beside
    workers that wait at the barrier, which stay there, at low priority; ended once the machine is wanted for anything else. clock: the
    controller's time in the order, with the round trip that it measured."""

    operation: str
    orders: tuple[ProbeOrder, ...]
    wait_s: float = 0.0
    force: bool = False
    beside: bool = False
    clock: Mapping[str, float] = field(default_factory=dict)


def parse_probes(body: Any) -> ProbeRequest:
    """From a decoded JSON body. Raises BadInputError that names the field."""
    if not isinstance(body, dict):
        raise BadInputError(f"the body must be an object such as {_EXAMPLE}")
    operation, probes = body.get("operation"), body.get("probes")
    if not isinstance(operation, str) or not 1 <= len(operation) <= 255:
        raise BadInputError(f"operation is {operation!r}: a name such as in {_EXAMPLE}")
    if not isinstance(probes, list) or not 1 <= len(probes) <= len(PROBES):
        raise BadInputError(f"probes must be a list of 1 to {len(PROBES)} objects, as in {_EXAMPLE}")
    wait_s = _number("wait_s", body.get("wait_s", 0.0), 0.0, _LONGEST_WAIT_S)
    flags = {name: body.get(name, False) for name in ("force", "beside")}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise BadInputError(f"{name} is {value!r}: true or false")
    known = {name: body[name] for name in ("controller_time_s", "round_trip_s") if body.get(name) is not None}
    clock = {name: _number(name, value, 0.0, 1e12) for name, value in known.items()}
    return ProbeRequest(operation, tuple(_order(item) for item in probes), wait_s, clock=clock, **flags)


def _order(item: Any) -> ProbeOrder:
    if not isinstance(item, dict) or not isinstance(item.get("id"), str) or not _HASH.fullmatch(str(item.get("sha256"))):
        raise BadInputError(f"a probe is ordered by its id and the SHA-256 of its file, as in {_EXAMPLE}")
    limit_s, pair, replay = item.get("limit_s"), item.get("pair"), item.get("replay")
    if (item["id"] == "pair") != (pair is not None):
        raise BadInputError(
            f"probe {item['id']}: the object `pair` (addresses, port, role, secret) belongs to the probe pair, and to no other"
        )
    if (item["id"] == "replay") != (replay is not None):
        raise BadInputError(
            f"probe {item['id']}: the object `replay` (group, ranks, meetings) belongs to the probe replay, and to no other"
        )
    limit_s = None if limit_s is None else _number("limit_s", limit_s, 0.1, 3600.0)
    own = None if replay is None else parse_replay(replay)
    return ProbeOrder(item["id"], item["sha256"], limit_s, None if pair is None else parse_pair(pair), own)


def _number(name: str, value: Any, least: float, most: float) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
        raise BadInputError(f"{name} is {value!r}: a number from {least:g} to {most:g}")
    return float(value)


def refusal(orders: Sequence[ProbeOrder], programs: Mapping[str, Program]) -> str:
    """Why one of them is not run here, "" if all may."""
    for order in orders:
        program = programs.get(order.name)
        if program is None:
            return f'no probe "{order.name}": this machine has {", ".join(programs)}'
        if program.sha256 != order.sha256:
            return (
                f"probe {order.name} of this machine (version {program.probe.version}, {program.sha256[:12]}) is not the one that was"
                f" ordered ({order.sha256[:12]}): install the same version of minder on both"
            )
    return ""


@dataclass(frozen=True, slots=True)
class Run:
    """A program that is to run. limit_s: less than its own, if given. options: what only this one gets."""

    program: Program
    limit_s: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


async def run_programs(
    runs: Sequence[Run], options: Mapping[str, Any], nice: int = 0, done: Callable[[ProbeResult], None] = lambda result: None
) -> list[ProbeResult]:
    """One after the other: two at once would measure each other. Settings that one may change are put back before the next begins."""
    found = []
    for item in runs:
        found.append(await _run_kept(item.program, {**options, **item.options}, item.limit_s, nice))
        done(found[-1])
    return found


async def _run_kept(program: Program, options: Mapping[str, Any], limit_s: float | None, nice: int) -> ProbeResult:
    saved = await save(program.probe.changes)
    if isinstance(saved, str):
        return ProbeResult(program.probe.name, program.probe.version, "not_judged", saved, sha256=program.sha256, started_s=time.time())
    try:
        result = await run_probe(program, options, limit_s=limit_s, nice=nice)
    finally:
        restored = await asyncio.shield(restore(saved))
    if restored.failed:
        return replace(result, state="not_judged", detail=f"settings that it changed are not restored: {'; '.join(restored.failed)}")
    if restored.changed:
        note = f"settings were restored: {'; '.join(restored.changed)}"
        return replace(result, detail=f"{result.detail}; {note}" if result.detail else note)
    return result


@dataclass(slots=True)
class OperationRun:
    """One operation's test of this machine, as far as it has come. conclusive: it ran to its end, so that a failure is the machine's."""

    begun_s: float
    state: str = "running"
    detail: str = ""
    seconds: float = 0.0
    results: list[ProbeResult] = field(default_factory=list)
    conclusive: bool = False
    beside: bool = False
    task: asyncio.Task[None] | None = None


def _changing(orders: Sequence[ProbeOrder], programs: Mapping[str, Program]) -> str:
    """Why one of them is none for a machine that may be wanted at any moment, "" if all are."""
    found = next((order.name for order in orders if programs[order.name].probe.changes), None)
    return "" if found is None else f"probe {found} may change settings of the machine: it never runs beside waiting workers"


class Probing:
    """`ask` begins an operation's probes, or finds what came of them; the last hundred are remembered as long as the process runs."""

    def __init__(
        self, options: Mapping[str, Any] | None = None, programs: Mapping[str, Program] | None = None,
        occupied: Callable[[], bool] = lambda: False, alone: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        """options: what every probe gets (folder). programs: those of the package, if not given. occupied: whether something else tests
        this machine. alone: entered while probes run; it takes away what waits on the devices, and brings it back."""
        self._occupied, self._alone = occupied, alone
        self._options = dict(options or {})
        self._programs = find_programs() if programs is None else programs
        self._runs: dict[str, OperationRun] = {}

    @property
    def busy(self) -> bool:
        return any(run.state == "running" for run in self._runs.values())

    async def ask(self, request: ProbeRequest, disturbed: str, received_s: float) -> dict[str, Any]:
        """{"operation", "state": running | done | refused, "detail", "seconds", "results"}. disturbed: what they would disturb, ""
        for nothing; with `force` they run all the same. received_s: this machine's clock when the order came."""
        run = self._runs.get(request.operation)
        if run is None:
            if not request.beside:
                await self._end([item for item in self._runs.values() if item.beside])  # what waits is the less urgent test
            why = self._refusal(request, disturbed)
            if why:
                event(_log, logging.WARNING, "probes refused", operation=request.operation, why=why)
                return {"operation": request.operation, "state": "refused", "detail": why, "seconds": 0.0, "results": []}
            run = self._runs[request.operation] = OperationRun(time.monotonic(), beside=request.beside)
            run.task = asyncio.create_task(self._run(run, request, _LOW_PRIORITY if disturbed or request.beside else 0, received_s))
            while len(self._runs) > _KEPT:
                del self._runs[next(iter(self._runs))]
        if run.task is not None and run.state == "running":
            await asyncio.wait({run.task}, timeout=request.wait_s)
        seconds = run.seconds if run.state != "running" else time.monotonic() - run.begun_s
        results = [to_json(result) for result in run.results]
        return {"operation": request.operation, "state": run.state, "detail": run.detail, "seconds": round(seconds, 1), "results": results}

    async def test(self, names: Sequence[str]) -> list[ProbeResult]:
        """The results of these probes of the package, for a caller who keeps count of operations itself."""
        run = self._runs[f"test-{time.monotonic_ns()}"] = OperationRun(time.monotonic())
        try:
            return await run_programs([Run(self._programs[name]) for name in names], self._options)
        finally:
            run.state = "done"

    async def close(self) -> None:
        """End what runs."""
        await self._end(list(self._runs.values()))

    async def give_way(self) -> None:
        """The job takes this machine: end what runs. A test beside waiting workers is not waited for: its process is killed, and it has
        changed no setting that would have to be put back first."""
        for run in self._runs.values():
            if run.beside and run.task is not None:
                run.task.cancel()
        await self._end([run for run in self._runs.values() if not run.beside])

    async def _end(self, runs: Sequence[OperationRun]) -> None:
        tasks = [run.task for run in runs if run.task is not None and not run.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    def _refusal(self, request: ProbeRequest, disturbed: str) -> str:
        if why := refusal(request.orders, self._programs):
            return why
        if self.busy or self._occupied():
            return "another test of this machine is under way"
        if request.beside and (why := _changing(request.orders, self._programs)):
            return why
        return f"{disturbed}: a probe would disturb them; end them first, or order with force" if disturbed and not request.force else ""

    async def _run(self, run: OperationRun, request: ProbeRequest, nice: int, received_s: float) -> None:
        event(_log, logging.INFO, "probes begin", operation=request.operation, probes=[order.name for order in request.orders])
        chosen = [Run(self._programs[order.name], order.limit_s, order.options()) for order in request.orders]
        options = {**self._options, **request.clock, "received_s": received_s}
        try:
            async with nullcontext() if request.beside else self._alone():
                await run_programs(chosen, options, nice, run.results.append)
            run.state = "done"
        finally:
            run.seconds = time.monotonic() - run.begun_s
            if run.state != "done":
                run.state, run.detail = "refused", "the probes were ended before their time"
        event(_log, logging.INFO, "probes end", operation=request.operation, seconds=round(run.seconds, 1))
