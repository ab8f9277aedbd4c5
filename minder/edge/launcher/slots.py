"""One worker slot: what is wanted of it, and one function that brings it one step nearer.

`converge` is called after everything that happens (a request, a message, an exit, a timer): it looks at the target and at the
process, and does the one thing that is due. It keeps no plan, so nothing can be forgotten half-way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from minder.edge.launcher.process import Exit, WorkerProcess
from minder.edge.launcher.settings import LaunchSettings
from minder.model.log import say

__all__ = ["Slot", "Target", "Witness"]

_BACKOFF_S, _BACKOFF_LIMIT_S = 0.5, 30.0
_WARM_KEPT_S = 300.0  # a process of a version that no generation ran within this is ended


@dataclass(slots=True)
class Target:
    """What the controller wants of a slot. `taken`: the place was given away once; a dead worker does not get it again."""

    desired: Literal["run", "parked", "ended"]
    generation: int = -1
    env: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 5.0
    taken: bool = False


class Witness(Protocol):
    """What is notified of what happens in a slot."""

    def heard(self, slot: Slot, worker: WorkerProcess, message: Mapping[str, Any]) -> None: ...

    def gone(self, slot: Slot, worker: WorkerProcess, exit: Exit) -> None: ...

    def changed(self) -> None: ...


class Slot:
    """A place for one worker, and its warm spare: of the same version, or of the one that is to take its place."""

    def __init__(self, index: int, settings: LaunchSettings, witness: Witness) -> None:
        self.index = index
        self.target = Target("parked")
        self.worker: WorkerProcess | None = None
        self.spare: WorkerProcess | None = None
        self.heartbeat = settings.heartbeat_dir / f"{settings.job}-{index}"
        self.log = settings.log_dir / f"{settings.job}-{index}.log"
        self.program = settings  # of the workers that are started from now on; set it before `aim`
        self._coming: LaunchSettings | None = None  # the version that a spare is warmed up for
        self._died: Exit | None = None  # how that spare ended by itself
        self._settings, self._witness = settings, witness
        self._failures = 0
        self._started = False
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def alive(self) -> bool:
        """Whether a process of this slot, worker or spare, is still there."""
        return any(process is not None and process.alive for process in (self.worker, self.spare))

    def aim(self, target: Target) -> None:
        """A new target replaces the old one, whatever was under way. A slot that was ended and is wanted again begins anew."""
        if self.target.desired == "ended" != target.desired and self.worker is not None and not self.worker.alive:
            self.worker = None  # also one that had finished its part, which a parked slot would keep as it is
        self.target = target
        self._failures = 0
        self._cancel("start")
        self.converge()

    def warm(self, program: LaunchSettings) -> tuple[bool, Exit | None]:
        """Start a process of another version beside the worker, so that the job stands only for the exchange. Whether there is nothing left
        to wait for, and how the process ended where it did not come to its barrier."""
        worker = self.worker
        if worker is None or worker.state != "running" or self.target.desired != "run" or worker.program == program:
            return True, None
        self._later("drop", _WARM_KEPT_S, self._drop)
        if self._coming != program:
            self._coming, self._died = program, None
        if self._died is not None:
            return True, self._died
        if self.spare is None or not self.spare.alive:
            self._start_spare()
        elif self.spare.program != program:
            self.spare.end(self.target.grace_s)
        return self.spare is not None and self.spare.program == program and self.spare.state == "waiting", None

    def _drop(self) -> None:
        """The version never came."""
        self._coming = None
        if self.spare is not None and self.spare.program != self.program:
            self.spare.end(self.target.grace_s)

    def converge(self) -> None:
        if self.target.desired == "ended":
            for process in (self.worker, self.spare):
                if process is not None:
                    process.end(self.target.grace_s)
            return
        if self.worker is None or not self.worker.alive:
            self._fill()
            return
        if self.worker.program != self.program:
            self.worker.end(self.target.grace_s)  # what is loaded in a process stays: another version gets a fresh one
            return
        wants_run = self.target.desired == "run"
        if self.worker.state == "waiting" and wants_run and not self.target.taken:
            self.target.taken = True
            self.worker.assign(self.target.generation, self.target.env, self.heartbeat)
            self._witness.changed()
        elif self.worker.state == "running" and (not wants_run or self.worker.generation < self.target.generation):
            self.worker.interrupt(self.target.grace_s)

    def _fill(self) -> None:
        """Put a process into the empty place: the spare if there is one, a new one otherwise, later if they keep dying."""
        if self.worker is not None and self.worker.finished and (self.target.taken or self.target.desired == "parked"):
            return
        if "start" in self._timers:
            return
        if self.spare is not None and self.spare.alive and self.spare.program != self.program:
            self.spare.end(self.target.grace_s)
        elif self.spare is not None and self.spare.alive:
            self.worker, self.spare, self._coming = self.spare, None, None
            self._witness.changed()
            if self.worker.state == "waiting":
                self._witness.heard(self, self.worker, {"kind": "waiting"})
                self.converge()
            return
        if self._failures == 0:
            self._start()
            return
        delay_s = min(_BACKOFF_LIMIT_S, _BACKOFF_S * 2 ** (self._failures - 1))
        self._later("start", delay_s, self._start)

    def _start(self) -> None:
        """A first worker starts at full speed; one that is warmed up beside a running job does not take its processor."""
        if self.target.desired == "ended":
            return
        try:
            self.worker = self._spawn(self.heartbeat, low_priority=self._started)
        except OSError as error:
            self._failures += 1
            say(f"minder launch: slot {self.index} cannot start: {error}")
            self._fill()
            return
        self._started = True
        self._witness.changed()

    def _start_spare(self) -> None:
        running = self.worker is not None and self.worker.state == "running" and (self._coming is not None or not self.worker.in_place)
        if running and self.target.desired == "run" and (self.spare is None or not self.spare.alive):
            heartbeat = self.heartbeat.with_name(self.heartbeat.name + ".spare")
            try:
                self.spare = self._spawn(heartbeat, low_priority=True, program=self._coming)
            except OSError as error:
                say(f"minder launch: slot {self.index} has no spare: {error}")

    def _spawn(self, heartbeat: Path, low_priority: bool, program: LaunchSettings | None = None) -> WorkerProcess:
        return WorkerProcess(program or self.program, heartbeat, self.log, self._hear, self._bury, low_priority, self.index)

    def _hear(self, worker: WorkerProcess, message: Mapping[str, Any]) -> None:
        kind = message.get("kind")
        if kind == "waiting":
            worker.back_at_barrier()
        elif kind == "running":
            worker.in_place = bool(message.get("in_place"))
            if self._settings.warm_spares and not worker.in_place:
                self._later("spare", self._settings.spare_delay_s, self._start_spare)
        elif kind == "done":
            worker.finished = True
        if worker is self.worker:
            self._failures = 0 if worker.reached_barrier else self._failures
            self._witness.heard(self, worker, message)
            if not worker.reaping:
                self.converge()

    def _bury(self, worker: WorkerProcess, exit: Exit) -> None:
        if worker is self.spare:
            self.spare = None
            if worker.program == self._coming and not worker.end_wanted:
                self._died = exit
            return
        if not worker.reached_barrier:
            self._failures += 1
        self._witness.gone(self, worker, exit)
        self.converge()

    def _later(self, name: str, delay_s: float, action: Callable[[], None]) -> None:
        self._cancel(name)

        def act() -> None:
            self._timers.pop(name, None)
            action()

        self._timers[name] = self._loop.call_later(delay_s, act)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()
