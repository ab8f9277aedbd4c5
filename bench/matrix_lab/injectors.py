"""What the bench does to machines and processes from outside. Each is asked again and again and acts when its moment has come.

A firing is {what, machine, rank, step, pid, time_s}, as the scripts' own troubles are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from typing import Any, Protocol

from matrix_lab.cells import Injection
from matrix_lab.traces import Trained
from minder.model.errors import LabError
from minder.simulate.lab.faults import InjectionRecord, inject
from minder.simulate.lab.lab import Lab

__all__ = ["Injector", "make_injector"]

_SETTLED_S = 2.0  # so long a machine that kills lets its rank step
_MOST = 6  # a bad machine that keeps its place fails so often and not for ever


class Injector(Protocol):
    """fired: what it has done so far."""

    fired: list[dict[str, Any]]

    def complete(self) -> bool:
        """Whether all that was planned has happened."""

    def look(self, trained: Sequence[Trained]) -> None:
        """Do what is due, given all processes that have trained."""

    def close(self) -> None:
        """Heal what must be healed before the lab goes."""


def make_injector(injection: Injection | None, lab: Lab, target: int, second: int) -> Injector:
    if injection is None:
        return _Nothing()
    makers: dict[str, Any] = {
        "stop-target": lambda: _Stops(lab, (target,), injection.steps[0]),
        "stop-both": lambda: _Stops(lab, (target, second), injection.steps[0]),
        "kill-rank": lambda: _Kills((target,) * len(injection.steps), injection.steps),
        "kill-in-turn": lambda: _Kills(tuple(index % len(lab.machines) for index in range(len(injection.steps))), injection.steps),
        "kill-on-target": lambda: _KillerMachine(lab, target),
        "drop-link": lambda: _DeadLink(lab, target, injection.steps[0]),
    }
    made: Injector = makers[injection.kind]()
    return made


class _Nothing:
    def __init__(self) -> None:
        self.fired: list[dict[str, Any]] = []

    def look(self, trained: Sequence[Trained]) -> None:
        return

    def complete(self) -> bool:
        return True

    def close(self) -> None:
        return

    def _note(self, what: str, victim: Trained) -> None:
        self.fired.append(
            {"what": what, "machine": victim.machine, "rank": victim.rank, "step": victim.step, "pid": victim.pid, "time_s": time.time()}
        )

    def _pids(self) -> set[int]:
        return {fired["pid"] for fired in self.fired}


class _Stops(_Nothing):
    """SIGSTOP at the step, of the first machine each time it gets there; of the next one once that one has failed and the job went on."""

    def __init__(self, lab: Lab, indexes: Sequence[int], step: int) -> None:
        super().__init__()
        self._lab, self._indexes, self._step = lab, tuple(indexes), step

    def look(self, trained: Sequence[Trained]) -> None:
        for index in self._indexes:
            name = self._lab.all_machines[index].name
            mine = [item for item in trained if item.machine == name and item.alive]
            hit = [fired for fired in self.fired if fired["machine"] == name]
            # A peer of a stopped rank dies with its generation: only who has begun since is the next machine's rank.
            since_s = max((fired["time_s"] for fired in self.fired), default=0.0)
            for victim in mine:
                if victim.step >= self._step and victim.began_s > since_s and len(hit) < _MOST:
                    self._stop(index, victim)
            if mine or not hit:
                return  # the next machine's turn comes when this one is gone from the job

    def complete(self) -> bool:
        return {fired["machine"] for fired in self.fired} == {self._lab.all_machines[index].name for index in self._indexes}

    def _stop(self, index: int, victim: Trained) -> None:
        with contextlib.suppress(LabError):  # it was ended this moment
            inject(self._lab, "hang", index)
            self._note("SIGSTOP", victim)


class _Kills(_Nothing):
    """SIGKILL of a rank, wherever it runs: one for each step, each in a process that no signal of ours has met."""

    def __init__(self, ranks: Sequence[int], steps: Sequence[int]) -> None:
        super().__init__()
        self._ranks, self._steps = tuple(ranks), tuple(steps)

    def complete(self) -> bool:
        return len(self.fired) == len(self._steps)

    def look(self, trained: Sequence[Trained]) -> None:
        if len(self.fired) == len(self._steps):
            return
        rank, step = self._ranks[len(self.fired)], self._steps[len(self.fired)]
        for victim in trained:
            if victim.rank == rank and victim.step >= step and victim.alive and victim.pid not in self._pids():
                os.kill(victim.pid, signal.SIGKILL)
                self._note("SIGKILL", victim)
                return


class _KillerMachine(_Nothing):
    """Whatever trains on the machine is killed some seconds after its first step."""

    def __init__(self, lab: Lab, index: int) -> None:
        super().__init__()
        self._name = lab.all_machines[index].name

    def complete(self) -> bool:
        return bool(self.fired)

    def look(self, trained: Sequence[Trained]) -> None:
        for victim in trained:
            due = victim.machine == self._name and len(victim.steps) > 1 and time.time() - victim.times_s[0] > _SETTLED_S
            if due and victim.alive and victim.pid not in self._pids() and len(self.fired) < _MOST:
                os.kill(victim.pid, signal.SIGKILL)
                self._note("SIGKILL", victim)


class _DeadLink(_Nothing):
    """The machine's data link drops everything: first at the step, then at the first step of each later process; it comes back when that
    process is gone, so that the job can always start again."""

    def __init__(self, lab: Lab, index: int, step: int) -> None:
        super().__init__()
        self._lab, self._index, self._step = lab, index, step
        self._record: InjectionRecord | None = None
        self._victim: Trained | None = None

    def complete(self) -> bool:
        return bool(self.fired)

    def look(self, trained: Sequence[Trained]) -> None:
        if self._victim is not None:
            if not self._victim.alive:
                self.close()
            return
        name = self._lab.all_machines[self._index].name
        for victim in trained:
            due = victim.step >= self._step if not self.fired else len(victim.steps) > 0
            if victim.machine == name and victim.alive and due and victim.pid not in self._pids() and len(self.fired) < _MOST:
                self._victim, self._record = victim, inject(self._lab, "dead-link", self._index)
                self._note("dead link", victim)
                return

    def close(self) -> None:
        if self._record is not None:
            self._record.undo()
        self._record = self._victim = None
