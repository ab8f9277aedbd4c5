"""The first worker of a generation that died by a deadly signal, remembered until the generation ends.

Its peers do not die at once: they wait in a collective until a watchdog ends them, seconds or minutes later, or for ever. So it is named
when others fail after it, or when the job stands because of it. A signal does not say whose fault it was: that is a page, unless the
machine's own evidence stands beside it. Of deadly exits within the clocks' error of each other, on several machines, none was first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minder.model.evidence import Signal
from minder.model.observation import Observation

__all__ = ["FirstExit", "Named"]

_DEADLY = frozenset({4, 7, 8, 9, 11})  # SIGILL, SIGBUS, SIGFPE, SIGKILL, SIGSEGV; SIGABRT is mostly a watchdog's echo
_BEFORE_S = 5.0  # an echo may be told before the end of whoever caused it is noticed
_FIRST_BY_S = 1.0  # clocks of recordings are no better
_SETTLE_S = 3.0
_HANGS_S = 30.0  # a job that stands for so long after a deadly exit stands because of it
_RESTART_S = 30.0
_GOES_ON = 3  # steps made after an exit that did not stop the job


@dataclass(frozen=True, slots=True)
class Named:
    """The exit that was first, and how many machines failed after it (0: the others hang)."""

    signal: Signal
    failed: int


class FirstExit:
    """Feed `note` the signals and ask `named` at every observation."""

    def __init__(self) -> None:
        self._exits: list[Signal] = []
        self._echoes: list[Signal] = []  # errors that point at somebody else, by their own words
        self._restart_s = float("-inf")
        self._steps = 0
        self._generation: int | None = None
        self.deadly: dict[str, float] = {}  # machine to when a rank of it ended by a deadly signal, in this generation

    def note(self, signal: Signal) -> None:
        if signal.kind == "phase" and signal.data.get("phase") == "restart":
            self._restart_s = signal.time_s
            self._forget()
        elif signal.kind == "membership" or (signal.kind == "step" and self._goes_on(signal)):
            self._forget()
        elif signal.machine is not None and signal.kind == "exit" and not signal.data.get("expected"):
            self._exits.append(signal)
            if _is_deadly(signal):
                self.deadly.setdefault(signal.machine, signal.time_s)
        elif signal.machine is not None and signal.kind == "exception" and signal.data.get("victim"):
            self._echoes.append(signal)

    def named(self, observation: Observation, stands_s: Callable[[float], float]) -> Named | None:
        """Whoever was first, once that is clear. stands_s: how long the job has stood since about a time, 0 if it does not."""
        generation = None if observation.job is None else observation.job.generation
        if generation != self._generation:
            self._generation = generation
            self._exits = [item for item in self._exits if observation.job and item.time_s >= observation.job.generation_start_s]
            self.deadly = {item.machine: item.time_s for item in self._exits if item.machine and _is_deadly(item)}
        exits = sorted((item for item in self._exits if _failed(item)), key=lambda item: item.time_s)
        if not exits or observation.now_s - exits[0].time_s < _SETTLE_S or abs(exits[0].time_s - self._restart_s) < _RESTART_S:
            return None
        deadly = [item for item in exits if _is_deadly(item)]
        if not deadly or deadly[0].time_s - exits[0].time_s >= _FIRST_BY_S:
            return None
        first = deadly[0]
        echoes = [item for item in self._echoes if item.time_s > first.time_s - _BEFORE_S]
        rest = [item for item in (*exits, *echoes) if item.machine != first.machine]
        tied = any(item.machine != first.machine and item.time_s - first.time_s < _FIRST_BY_S for item in deadly)
        if tied or not (rest or stands_s(first.time_s) >= _HANGS_S):
            return None
        return Named(first, len({item.machine for item in rest}))

    def _goes_on(self, signal: Signal) -> bool:
        """Whether the job has made steps after what had ended: then it was no part of it, or the job was started again."""
        self._steps = self._steps + 1 if self._exits and signal.time_s > self._exits[0].time_s + _SETTLE_S else 0
        return self._steps >= _GOES_ON

    def _forget(self) -> None:
        self._exits, self._echoes, self._steps, self.deadly = [], [], 0, {}


def _is_deadly(signal: Signal) -> bool:
    return int(signal.data.get("signal") or 0) in _DEADLY


def _failed(signal: Signal) -> bool:
    return bool(signal.data.get("signal")) or bool(signal.data.get("code"))
