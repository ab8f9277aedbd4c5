"""A job that goes on with fewer machines grows again: with its next eviction or restart, or by a restart of its own.

The restart is ordered once a standby has been ready for `grow_after_s` without a break, while the job steps. It goes through the policy as
every other restart: pause, max_restarts, dry run.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from minder.act.controller.state import JobState
from minder.act.policy.case import Case
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.limits import GROW, ready_standbys
from minder.act.policy.resize import joining
from minder.model.evidence import Evidence, Verdict
from minder.record.incidents import Ledger

__all__ = ["Growth"]

_SURE = 0.99


class Growth:
    """`look` once per tick, `move` when the wall clock was set. grow_after_s: 0: it never orders a restart."""

    def __init__(self, state: JobState, ledger: Ledger, config: PolicyConfig, grow_after_s: float) -> None:
        self._state, self._ledger, self._config, self._after_s = state, ledger, config, grow_after_s
        self._since_s = math.nan  # since when a standby could join without a break
        self._asked: tuple[int, float] | None = None  # generation and begin of the stretch that was answered

    def look(self, now_context: Callable[[], PolicyContext]) -> list[Verdict]:
        """At most one verdict for each stretch in which a standby could join. Raises LedgerError."""
        state = self._state
        steps = state.phase == "running" and state.first_step_seen
        if not self._after_s or not steps or len(set(state.rank_machine.values())) >= state.full_machines:
            self._since_s = math.nan
            return []
        context = now_context()
        now_s, sizes, joins = context.now_s, context.sizes, self._joins(context)
        if not joins or sizes is None:
            self._since_s = math.nan
            return []
        self._since_s = now_s if math.isnan(self._since_s) else self._since_s
        stretch = (self._state.generation, self._since_s)
        if now_s - self._since_s < self._after_s or self._asked == stretch:
            return []
        self._asked = stretch
        message = (
            f"{', '.join(joins)} could join for {now_s - self._since_s:.0f} s: the job has {len(context.job.machines)} of {sizes.full}"
        )
        evidence = (Evidence(GROW, None, f"{message} machines"[:240], since_s=self._since_s),)
        return [Verdict(now_s, "job", "evict", (), "explicit", _SURE, self._since_s, evidence, (), (GROW,))]

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self._since_s += by_s
        self._asked = self._asked and (self._asked[0], self._asked[1] + by_s)

    def _joins(self, context: PolicyContext) -> tuple[str, ...]:
        history = self._ledger.history(self._state.name, context.now_s)
        verdict = Verdict(context.now_s, "job", "evict", (), "explicit", _SURE, context.now_s)
        case = Case(verdict, "restart", "", history, context, self._config)
        return joining(case, ready_standbys(case))
