"""Nothing stands for ever: when a job that hangs is started again in place, and when a person orders it.

The rules:

- A job that stands as a whole, and of which no machine was evicted, is started again once it has stood for `restart_hung_after_s`, or
  for 20 of its steps if that is longer. Before it was at work in this generation, and where its stacks cannot be compared,
  `start_limit_s` holds instead. Stacks that moved, or activity of any kind, begin the time anew.
- Those who name machines begin to ask once a job that was at work is seen to stand: for 20 s after that nothing is started again,
  however short the limit is. Without steps a hang may be noticed only after the limit has passed.
- A declared phase, a pause, a maintenance window and an eviction that waits for an operator stop the clock.
- What could not be done is asked again while the job still stands: once an engine that refused (Slurm did not answer) refuses no more, and
  where the answer came too late to act on.
- The restart goes through the policy like every other: max_restarts, and without --act it is only written down.
- A person's order (`minder job restart`) goes the same way, at once, once. One that was given before the present generation began, or
  more than ten minutes ago, is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minder.act.controller.state import JobState
from minder.act.policy import timing
from minder.act.policy.case import Case
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.limits import HANG, ORDER
from minder.diagnose.verdicts.hang import Standing
from minder.model.evidence import Evidence, Verdict
from minder.model.history import History
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.orders import ORDER_S

__all__ = ["HungJob"]

_STEPS = 20.0
_WITNESSES_S = 20.0  # connections, then two looks at the stacks (minder.diagnose.verdicts.stall)
_LONGEST_TICK_S = 60.0
_SURE = 0.9


class HungJob:
    """`look` once per tick, `orders` too; both return verdicts for the policy."""

    def __init__(self, state: JobState, ledger: Ledger, config: PolicyConfig) -> None:
        self._state, self._ledger, self._config = state, ledger, config
        self._since_s = math.nan
        self._stopped_s = 0.0  # for so long the clock has been stopped in this stretch
        self._looked_s = math.nan
        self._asked: tuple[int, float] | None = None  # generation and begin of the stretch that was answered
        self._was_refused = False  # by the job's engine, when it was asked
        self._since_id = 0
        self.left_s: float | None = None  # until a restart; None: no clock runs

    def look(self, standing: Standing | None, context: Callable[[float], PolicyContext], now_s: float, typical_s: float) -> list[Verdict]:
        """At most one verdict for each stretch. context: of a time. typical_s: of a step, NaN if none is known. Raises LedgerError."""
        passed_s = 0.0 if math.isnan(self._looked_s) else min(max(0.0, now_s - self._looked_s), _LONGEST_TICK_S)
        self._looked_s, self.left_s = now_s, None
        if standing is None or standing.stood is False or not self._config.restart_hung_after_s:
            self._since_s = math.nan
            return []
        if standing.since_s != self._since_s:
            self._since_s, self._stopped_s = standing.since_s, 0.0
        verdict, around = self._verdict(standing, now_s), context(now_s)
        if self._is_stopped(verdict, around):
            self._stopped_s += passed_s
            return []
        self.left_s = self._limit_s(standing, typical_s) - (now_s - standing.since_s - self._stopped_s)
        if standing.began and not math.isnan(standing.seen_s):
            self.left_s = max(self.left_s, _WITNESSES_S - (now_s - standing.seen_s))
        stretch, is_refused = (self._state.generation, standing.since_s), bool(around.restart_refused)
        if self.left_s > 0 or (self._asked == stretch and (is_refused or not self._was_refused)):
            return []
        self._asked, self._was_refused = stretch, is_refused
        return [verdict]

    def ask_again(self) -> None:
        """What was asked could not be decided in time, as while the ledger was away: if the job still stands, it is asked anew."""
        self._asked = None

    def orders(self, now_s: float) -> list[Verdict]:
        """What people ordered since the last call. Raises LedgerError; then the next call returns the same."""
        events = self._ledger.events(since_id=self._since_id, job=self._state.name, kinds=(kinds.RESTART_ASKED,))
        found = []
        for event in events:
            if event.time_s < max(self._state.generation_start_s, now_s - ORDER_S):
                continue
            message = (
                f"{event.payload.get('by') or 'an operator'} orders a restart in place: {event.payload.get('reason') or 'no reason given'}"
            )
            evidence = (Evidence(ORDER, None, message[:240], since_s=event.time_s),)
            found.append(Verdict(now_s, "job", "evict", (), "explicit", 0.99, event.time_s, evidence, (), (ORDER,)))
        self._since_id = events[-1].id if events else self._since_id
        return found[-1:]

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self._since_s += by_s
        self._looked_s += by_s

    def _limit_s(self, standing: Standing, typical_s: float) -> float:
        limit_s = max(self._config.restart_hung_after_s, 0.0 if math.isnan(typical_s) else _STEPS * typical_s)
        return limit_s if standing.began and standing.stood else max(limit_s, self._config.start_limit_s)

    def _verdict(self, standing: Standing, now_s: float) -> Verdict:
        confidence = _SURE if standing.stood else 0.5
        return Verdict(now_s, "job", "evict", (), "stall", confidence, standing.since_s, standing.evidence, (), (HANG,))

    def _is_stopped(self, verdict: Verdict, context: PolicyContext) -> bool:
        history = self._ledger.history(self._state.name, context.now_s)
        case = Case(verdict, "restart", "", history, context, self._config)
        return timing.paused(case).action is not None or _is_asked(history, self._state.generation)


def _is_asked(history: History, generation: int) -> bool:
    """An operator has an eviction of this generation to answer, or has just approved it."""
    return any(item.generation == generation and item.state in ("waiting", "approved") and not item.closed for item in history.approvals)
