"""What came since the last tick: signals of machines, of the service and of telemetry, and what each machine shows, by one clock.

The wall clock may be set: by hand, by NTP after a boot, by a virtual machine that slept. No time passed, and no machine fell silent. Ages
and durations are differences of times, so none may span a step of the clock. What the job is stays known; what the rules and the detector
remember is learned anew, as by a controller that was started again.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from minder.act.controller.stages import Guards, Stages, Tick
from minder.act.controller.state import JobState
from minder.model.clock import Clock
from minder.model.errors import WireError
from minder.model.evidence import Signal
from minder.model.observation import MachineView
from minder.record.incidents import Ledger, kinds
from minder.wire.codec import from_json

__all__ = ["ClockSteps", "Hearing", "Inbox"]

_NOTICED_S = 2.0  # less is within what telemetry's jitter and a slow tick do anyway
_SETTLE_S = 5.0  # by then every machine has answered again, and its clock is compared with the new one
_INBOX_KINDS = frozenset({"xid", "link", "kernel", "report", "order"})
_INBOX_FRESH_S = 600.0
_MOST_READ = 2000
_MOST_HELD = 10_000  # signals that wait for a tick at which something may be concluded


class ClockSteps:
    """Call `look` once per tick. `settling`: so soon after a step that nothing may be concluded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference_s = clock.now_s() - clock.monotonic_s()
        self._noticed_s = -math.inf

    def look(self) -> float:
        """Seconds that the wall clock was set forward (negative: back) since the last call; 0.0 if it was not."""
        now_s = self._clock.now_s() - self._clock.monotonic_s()
        moved_s, self._difference_s = now_s - self._difference_s, now_s
        if abs(moved_s) <= _NOTICED_S:
            return 0.0
        self._noticed_s = self._clock.monotonic_s()
        return moved_s

    @property
    def settling(self) -> bool:
        return self._clock.monotonic_s() - self._noticed_s < _SETTLE_S

    def move(self, signals: Iterable[Signal], by_s: float) -> list[Signal]:
        """Signals that were dated just before the step, dated by the new clock; those that were dated after it stay."""
        now_s = self._clock.now_s()
        near = abs(by_s) / 2
        return [replace(item, time_s=item.time_s + by_s) if abs(item.time_s - now_s) > near else item for item in signals]


class Inbox:
    """`take` once per tick: every signal is handed out once, by one controller; what lies further back than ten minutes is the past."""

    def __init__(self, ledger: Ledger, job: str, spoken: Callable[[], list[Signal]] = list) -> None:
        """spoken: what telemetry said outright since it was last asked (minder.ingest.sources.spoken)."""
        self._ledger, self._job, self._spoken = ledger, job, spoken
        self._since_id = 0
        self._begun_s = math.inf
        self._unreadable = 0

    def take_unreadable(self) -> int:
        """Signals since the last call that this version cannot read."""
        found, self._unreadable = self._unreadable, 0
        return found

    def take(self, now_s: float) -> list[Signal]:
        """Raises LedgerError; then the next call hands out the same."""
        self._begun_s = min(self._begun_s, now_s)
        events = self._ledger.events(since_id=self._since_id, job=self._job, kinds=(kinds.SIGNAL,), limit=_MOST_READ)
        found = []
        for event in events:
            if event.time_s < self._begun_s - _INBOX_FRESH_S:
                continue
            try:
                signal = from_json(Signal, event.payload.get("signal"))
            except WireError:  # written by a version that knows more than this one
                self._unreadable += 1
                continue
            if signal.kind in _INBOX_KINDS and signal.machine is not None:
                found.append(signal)
        self._since_id = events[-1].id if events else self._since_id
        return [*found, *self._spoken()]


class Hearing:
    """`take`, then `hear`, once per tick. Signals that nothing can be concluded from yet are kept in `Tick.held`."""

    def __init__(self, state: JobState, stages: Stages, tick: Tick, guards: Guards, clock_steps: ClockSteps) -> None:
        self._state, self._stages, self._tick, self._guards, self._clock_steps = state, stages, tick, guards, clock_steps
        self.on_say: Callable[[str], None] = lambda message: None
        self._lost: Counter[str] = Counter()

    def take_lost(self) -> Mapping[str, int]:
        """Signals that were said and that no rule will see, since the last call, by why."""
        inbox = 0 if self._stages.inbox is None else self._stages.inbox.take_unreadable()
        found, self._lost = self._lost + Counter(self._stages.fleet.lost()) + Counter(unreadable=inbox), Counter()
        return found

    def take(self, now_s: float, moved_s: float) -> None:
        """All that came since the last tick joins what is held."""
        signals, nothing = list(self._stages.fleet.drain()), list[Signal]()
        if moved_s:
            signals = self._clock_steps.move(signals, moved_s)
        if self._stages.inbox is not None:
            signals += self._guards.run("inbox", functools.partial(self._stages.inbox.take, now_s), nothing)
        waiting = [*self._tick.held, *signals]
        self._lost["queue"] += max(0, len(waiting) - _MOST_HELD)
        self._tick.held = waiting[-_MOST_HELD:]

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
