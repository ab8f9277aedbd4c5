"""The workers of one job on one machine: requests in, events and state out."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import math
import os
import signal
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from minder.edge.launcher.cache import CacheProcess
from minder.edge.launcher.events import EventRing
from minder.edge.launcher.last_words import read_last_words
from minder.edge.launcher.logs import LogFollower
from minder.edge.launcher.metrics import LauncherFigures, Tally
from minder.edge.launcher.process import Exit, WorkerProcess
from minder.edge.launcher.register import Register
from minder.edge.launcher.requests import WorkersRequest
from minder.edge.launcher.settings import LaunchSettings
from minder.edge.launcher.slots import Slot, Target
from minder.edge.launcher.updates import ProgramOrder, Updates
from minder.model.errors import BadInputError, WireError
from minder.model.evidence import Signal
from minder.model.log import event, say
from minder.model.observation import WorkerView
from minder.wire.codec import from_json
from minder.wire.heartbeat import nonfinite_since, read_heartbeat

__all__ = ["StaleGenerationError", "Supervisor"]

_log = logging.getLogger("minder.launcher")
_REMEMBERED_OPERATIONS = 1000
_LOG_INTERVAL_S = 0.25
_CACHE_INTERVAL_S = 1.0
_VACATE_S = 5.0
_BEFORE_EXIT_S = 1e-3  # what it wrote comes before its end


class StaleGenerationError(WireError):
    """A request of a generation that is over."""


class Supervisor:
    """Lives in one event loop; nothing here blocks for longer than starting a process takes."""

    def __init__(self, settings: LaunchSettings, register: Register) -> None:
        self.settings = settings
        self.started_s = time.time()
        self.generation = 0
        self.events = EventRing()
        self._register = register
        self._operations: OrderedDict[str, None] = OrderedDict()
        self._slots = [Slot(index, settings, self) for index in range(settings.slots)]
        self._logs = [LogFollower(slot.log, settings.log_limit_bytes, settings.step_pattern) for slot in self._slots]
        self._cache = CacheProcess(settings)
        self.updates = Updates(settings)
        self.update = 0  # that workers are started with
        self._ending = False
        self._skips: dict[int, bool] = {}  # slot with a rank of this generation: whether its loader leaves batches out when asked to
        self.tally = Tally()

    def start(self) -> None:
        """Start every slot's process: without an assignment it waits at the barrier, which is all a standby does."""
        self._cache.ensure()
        for slot in self._slots:
            slot.converge()

    def apply(self, request: WorkersRequest) -> Literal["done", "already_done"]:
        """Aim the slots. Raises StaleGenerationError for a generation that is over, WireError for a version that cannot be run here; a
        known operation changes nothing."""
        if request.operation_id in self._operations:
            return "already_done"
        if request.generation < self.generation:
            raise StaleGenerationError(f"generation {request.generation} is over: this launcher is in {self.generation}")
        if request.desired == "run":  # what waits or ends keeps its version
            program = self.updates.program(request.program)
            self.update = program.update
            for slot in self._slots:
                slot.program = program
        self._operations[request.operation_id] = None
        while len(self._operations) > _REMEMBERED_OPERATIONS:
            self._operations.popitem(last=False)
        self.generation = request.generation
        named = {assignment.slot: assignment for assignment in request.assignments}
        if request.desired == "run":
            self._skips = dict.fromkeys(named, False)
        for slot in self._slots:
            mine = named.get(slot.index)
            desired = request.desired if request.desired != "run" or mine is not None else "parked"
            env = self._complete(mine.env, request) if mine is not None else {}
            if mine is not None:
                self._use_pattern(slot, mine.env.get("MINDER_STEP_PATTERN"))
            slot.aim(Target(desired, request.generation, env, request.grace_s))
        self.changed()
        return "done"

    def warm(self, order: Any) -> dict[str, Any]:
        """Processes of a version beside the workers, and whether they wait at their barrier. Raises WireError for a version that cannot be
        run here, or whose processes end before they are asked to run."""
        program = self.updates.program(from_json(ProgramOrder, order))
        found = [slot.warm(program) for slot in self._slots]
        if (died := next((exit for _, exit in found if exit is not None), None)) is not None:
            how = f"killed by {signal.Signals(died.signal).name}" if died.signal else f"exit status {died.code}"
            raise WireError(f"a process of update {program.update} ends before it is asked to run ({how}): see {self._slots[0].log}")
        return {"warm": all(waits for waits, _ in found)}

    def figures(self) -> LauncherFigures:
        """For /metrics."""
        settings = self.settings
        workers = tuple(self.views())
        return LauncherFigures(settings.job, settings.machine, self.started_s, self.generation, settings.slots, workers, self.tally)

    def views(self) -> list[WorkerView]:
        return [self._view(slot) for slot in self._slots]

    def kept_steps(self) -> dict[str, Any]:
        """ "kept": what the checkpoint cache says (see CacheProcess.kept); nothing where that is not known."""
        kept = self._cache.kept()
        return {} if kept is None else {"kept": kept}

    @property
    def skips(self) -> bool:
        """Whether every rank of the newest generation here asked which batches to leave out, also those that have ended since."""
        return bool(self._skips) and all(self._skips.values())

    async def follow_logs(self) -> None:
        """Until cancelled: keep logs below their limit, hand steps that they show to workers that never beat, and keep the checkpoint
        cache alive while a rank runs."""
        looked_s = 0.0
        while True:
            await asyncio.sleep(_LOG_INTERVAL_S)
            if time.monotonic() - looked_s > _CACHE_INTERVAL_S and self.ranks_here():
                looked_s = time.monotonic()
                self._cache.ensure()
            for slot, log in zip(self._slots, self._logs, strict=True):
                worker = slot.worker
                steps = log.read_steps(None if worker is None else (worker.pid, worker.generation))
                if worker is not None and worker.state == "running":
                    for step in steps:
                        worker.tell_step(step.step, step.loss, step.grad_norm)

    async def end_all(self, grace_s: float) -> None:
        """End every worker and wait for it."""
        self._ending = True
        for slot in self._slots:
            slot.aim(Target("ended", self.generation, grace_s=grace_s))
        deadline_s = time.monotonic() + grace_s + 5.0
        while any(slot.alive for slot in self._slots) and time.monotonic() < deadline_s:
            await asyncio.sleep(0.02)
        self._register.remove()

    def ranks_here(self) -> str:
        """Which ranks run, in words; "" for none."""
        ranks = sorted(view.rank for view in self.views() if view.rank is not None and view.state == "running")
        return f"ranks {', '.join(map(str, ranks[:8]))} of {self.settings.job} run on this machine" if ranks else ""

    @contextlib.asynccontextmanager
    async def vacated(self) -> AsyncIterator[None]:
        """Without the workers that wait at the barrier: they hold memory of the devices, so they are ended, and start again afterwards,
        where nothing else was asked for meanwhile."""
        mine = Target("ended", self.generation, grace_s=_VACATE_S)
        waiting = [slot for slot in self._slots if slot.alive and slot.target.desired == "parked"]
        for slot in waiting:
            slot.aim(mine)
        end_s = time.monotonic() + _VACATE_S + 2.0
        try:
            while any(slot.alive and slot.target is mine for slot in waiting) and time.monotonic() < end_s:
                await asyncio.sleep(0.02)
            yield
        finally:
            for slot in waiting:
                if slot.target is mine and not self._ending:
                    slot.aim(Target("parked", self.generation))

    def heard(self, slot: Slot, worker: WorkerProcess, message: Mapping[str, Any]) -> None:
        """A worker said something (Witness)."""
        kind = message.get("kind")
        if kind == "skips" and slot.index in self._skips:
            self._skips[slot.index] = True
        elif kind == "waiting":
            self._emit("waiting", worker, f"worker of slot {slot.index} waits at the barrier", time.time(), slot=slot.index)
        elif kind in ("exception", "nonfinite"):
            worker.exception_heard = worker.exception_heard or kind == "exception"
            data = {key: value for key, value in message.items() if key not in ("kind", "time_s", "message", "generation")}
            time_s = float(message.get("time_s", time.time()))
            self._emit(kind, worker, str(message.get("message", "")), time_s, slot=slot.index, **data)
        self.changed()

    def gone(self, slot: Slot, worker: WorkerProcess, exit: Exit) -> None:
        """A worker process ended (Witness)."""
        how = f"killed by {signal.Signals(exit.signal).name}" if exit.signal else f"exited with {exit.code}"
        who = f"rank {worker.rank}" if worker.rank is not None else f"the waiting worker of slot {slot.index}"
        fields: dict[str, Any] = {"code": exit.code, "signal": exit.signal, "expected": worker.end_wanted or self._ending}
        spoilt = {"nonfinite_since": step} if (step := _spoilt_step(worker)) is not None else {}
        label = signal.Signals(exit.signal).name if exit.signal else f"code {exit.code}"
        event(
            _log, logging.INFO if fields["expected"] or exit.code == 0 else logging.WARNING, "worker ended", job=self.settings.job,
            rank=worker.rank, slot=slot.index, pid=worker.pid, generation=worker.generation, **fields,
        )  # fmt: skip
        self.tally.exits[label, str(fields["expected"]).lower()] += 1
        if not fields["expected"] and not worker.exception_heard:
            self._emit_last_words(slot, worker, exit)
        self._emit("exit", worker, f"{who} {how}", exit.time_s, slot=slot.index, finished=worker.finished, **fields, **spoilt)
        self.changed()

    def changed(self) -> None:
        """Rewrite the register (Witness). A full disk must not stop the supervision."""
        workers = [
            {
                "slot": slot.index,
                "pid": slot.worker.pid if slot.worker is not None and slot.worker.alive else None,
                "rank": slot.worker.rank if slot.worker is not None else None,
                "heartbeat": str(slot.worker.heartbeat if slot.worker is not None else slot.heartbeat),
                "log": str(slot.log),
            }
            for slot in self._slots
        ]
        entry = {"job": self.settings.job, "machine": self.settings.machine, "generation": self.generation}
        try:
            self._register.write({**entry, "launcher_pid": os.getpid(), "workers": workers})
        except OSError as error:
            self.tally.register_errors += 1
            say(f"minder launch: register of {self.settings.job}: {error}")

    def _emit_last_words(self, slot: Slot, worker: WorkerProcess, exit: Exit) -> None:
        words = read_last_words(slot.log, worker.log_start_bytes, exit.signal)
        if words is not None:
            data = {"type": words.type, "fingerprint": words.fingerprint, "victim": words.victim}
            self._emit("exception", worker, words.message[:2000], exit.time_s - _BEFORE_EXIT_S, slot=slot.index, **data)

    def _use_pattern(self, slot: Slot, pattern: str | None) -> None:
        try:
            self._logs[slot.index].use(pattern)
        except BadInputError as error:
            say(f"minder launch: MINDER_STEP_PATTERN: {error}")

    def _complete(self, env: Mapping[str, str], request: WorkersRequest) -> dict[str, str]:
        own = {"MINDER_JOB": self.settings.job, "MINDER_GENERATION": str(request.generation)}
        world = {"WORLD_SIZE": str(request.world_size)} if request.world_size > 0 else {}
        return {**own, **world, **env, "MINDER_MACHINE": self.settings.machine}

    def _emit(self, kind: Any, worker: WorkerProcess, message: str, time_s: float, **data: Any) -> None:
        generation = worker.generation if worker.generation >= 0 else None
        machine, facts = self.settings.machine, {**data, "code_version": worker.code_version}
        self.events.append(Signal(time_s, kind, machine, message, worker.rank, None, worker.pid, generation, facts))

    def _view(self, slot: Slot) -> WorkerView:
        worker = slot.worker
        if worker is None:
            return WorkerView(slot.index, None, None, "ended" if slot.target.desired == "ended" else "exited", -1)
        pid = worker.pid if worker.alive else None
        view = WorkerView(slot.index, pid, worker.rank, worker.state, worker.generation, code_version=worker.code_version or None)
        try:
            page = read_heartbeat(worker.heartbeat)
        except WireError:
            return view
        if page.pid != worker.pid:
            return view
        if page.generation not in (-1, worker.generation):
            return dataclasses.replace(view, alive_time_s=page.alive_time_s or None)  # the worker has not read its new rank yet
        last = page.last
        return dataclasses.replace(
            view,
            step=None if last is None else last.step,
            step_time_s=None if last is None else last.time_s,
            alive_time_s=page.alive_time_s or None,
            phase=page.phase or None,
            loss=None if last is None or not math.isfinite(last.loss) else last.loss,
            first_step=page.recent[0].step if page.recent else None,
            first_step_time_s=page.recent[0].time_s if page.recent else None,
            work=page.work,
            work_unit=page.work_unit,
        )


def _spoilt_step(worker: WorkerProcess) -> int | None:
    """Since when the loss of a worker that has ended was not finite, as its page says."""
    try:
        page = read_heartbeat(worker.heartbeat)
    except WireError:
        return None
    return nonfinite_since(page) if (page.pid, page.generation) == (worker.pid, worker.generation) else None
