"""What the machines told since the last tick: their signals, and what each of them shows."""

from __future__ import annotations

import functools
from collections.abc import Callable

from minder.act.controller.clock_steps import ClockSteps
from minder.act.controller.guards import Guards
from minder.act.controller.stages import Stages
from minder.act.controller.state import JobState
from minder.act.controller.tick import Tick
from minder.model.evidence import Signal
from minder.model.observation import MachineView
from minder.record.incidents import kinds

__all__ = ["Hearing"]

_MOST_HELD = 10_000  # signals that wait for a tick at which something may be concluded


class Hearing:
    """`take`, then `hear`, once per tick. Signals that nothing can be concluded from yet are kept in `Tick.held`."""

    def __init__(self, state: JobState, stages: Stages, tick: Tick, guards: Guards, clock_steps: ClockSteps) -> None:
        self._state, self._stages, self._tick, self._guards, self._clock_steps = state, stages, tick, guards, clock_steps
        self.on_say: Callable[[str], None] = lambda message: None

    def take(self, now_s: float, moved_s: float) -> None:
        """All that came since the last tick joins what is held."""
        signals, nothing = list(self._stages.fleet.drain()), list[Signal]()
        if moved_s:
            signals = self._clock_steps.move(signals, moved_s)
        if self._stages.inbox is not None:
            signals += self._guards.run("inbox", functools.partial(self._stages.inbox.take, now_s), nothing)
        self._tick.held = [*self._tick.held, *signals][-_MOST_HELD:]

    def hear(self, now_s: float) -> tuple[list[Signal], dict[str, MachineView]]:
        """Signals, and what each machine shows. Of a job that we only watch: its own ranks, under our count of its restarts."""
        views, watched = self._stages.fleet.views(), self._stages.watched
        if watched is not None:
            change = watched.follow(self._state, views, now_s)
            if change:
                self._tick.backlog.tell(kinds.NOTE, {"text": change})
                self.on_say(change)
            views = watched.translate_views(self._state, views)
        if self._clock_steps.settling:
            return [], views
        signals, self._tick.held = self._tick.held, []
        return self._own_signals(signals), views

    def _own_signals(self, signals: list[Signal]) -> list[Signal]:
        """One by one, so that a signal that cannot be read takes no other with it."""
        watched, state, nothing = self._stages.watched, self._state, list[Signal]()
        if watched is None:
            return signals
        each = [self._guards.run("signals", functools.partial(watched.translate_signals, state, [item]), nothing) for item in signals]
        return [item for found in each for item in found]
