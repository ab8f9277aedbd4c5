"""How many standbys the job should have, how many are missing, and the engine that is asked for them.

The pool covers a percentile of the machines that fail in a day (minder.act.recovery.pool_size), at the rate that the ledger of all jobs
shows, or the published one where it shows none. Beside it stands the tail: the machines that go at once where a switch goes. Where
standbys are missing, the engine is asked for them once a generation, and what has not come by the deadline is not wanted any more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minder.act.controller.engine.work import EngineWork
from minder.act.controller.state import JobState
from minder.act.recovery.pool_size import FailureRate, PoolConfig, advise_standbys, rate_with_prior
from minder.model.clock import Clock
from minder.record.incidents import Ledger
from minder.record.incidents.failure_rate import FAILURE_KINDS, FailureFold

__all__ = ["PoolNeed", "PoolSize", "largest_domain"]

_READ_AGAIN_S = 60.0
_SHORT_S = 30.0  # standbys that start meanwhile need no engine


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """wanted: standbys, with low and high of the rate's 95 % interval. tail: machines behind the largest switch or rack, None where no
    machine names one; tail_name: that one."""

    machines: int
    rate: FailureRate
    wanted: int
    low: int
    high: int
    tail: int | None
    tail_name: str

    @property
    def basis(self) -> str:
        """What the rate rests on, in words."""
        if not self.rate.machine_days:
            return f"{self.rate.value:.4f} failures per machine and day, the published rate: nothing is counted yet"
        counted = f"{self.rate.failures} failures in {self.rate.machine_days:.3g} machine-days"
        span = f"{self.rate.low:.4f} to {self.rate.high:.4f}"
        return f"{self.rate.value:.4f} failures per machine and day ({span}): {counted}, and the published rate as one failure more"


def largest_domain(domains: Mapping[str, Mapping[str, str]], machines: set[str]) -> tuple[int | None, str]:
    """(machines of the job behind it, its name) of the largest switch; of the largest rack where no switch is named.

    >>> largest_domain({"a": {"switch": "s1"}, "b": {"switch": "s1"}, "c": {"switch": "s2"}}, {"a", "b", "c"})
    (2, 'switch s1')
    """
    for kind in ("switch", "rack"):
        found = Counter(domains[name][kind] for name in machines if kind in domains.get(name, {}))
        if found:
            name, count = max(found.items(), key=lambda item: (item[1], item[0]))
            return count, f"{kind} {name}"
    return None, ""


class PoolSize:
    """`tick` once per tick; it raises LedgerError. work: the engine's part, None without one or in a dry run. least: min_machines.
    domains: as the topology has them; they grow as machines join."""

    def __init__(
        self,
        state: JobState,
        ledger: Ledger,
        clock: Clock,
        domains: Mapping[str, Mapping[str, str]],
        config: PoolConfig | None = None,
        *,
        work: EngineWork | None = None,
        least: int | None = None,
    ) -> None:
        self._state, self._ledger, self._clock = state, ledger, clock
        self._domains, self._config, self._work, self._least = domains, config or PoolConfig(), work, least
        self._fold, self._since_id = FailureFold(), 0
        self._read_s = -math.inf
        self._need: PoolNeed | None = None
        self._short_s: float | None = None  # by the monotonic clock: since when standbys are missing without a break
        self._asked = 0  # the generation that the engine was asked in

    def tick(self, ready: int, untested: int = 0) -> None:
        """ready: standbys that could take a place now. untested: those that wait for their first test; no others are asked for instead."""
        monotonic_s = self._clock.monotonic_s()
        if not self._state.rank_machine:
            return
        if self._need is None or monotonic_s - self._read_s >= _READ_AGAIN_S:
            self._need, self._read_s = self._count(), monotonic_s
        missing = self._need.wanted - ready - untested
        self._short_s = None if missing <= 0 else monotonic_s if self._short_s is None else self._short_s
        if self._short_s is not None and monotonic_s - self._short_s >= _SHORT_S:
            self._ask(missing)

    def status(self, ready: int, untested: int = 0) -> dict[str, Any] | None:
        """For status.json, None before the first count."""
        need = self._need
        if need is None:
            return None
        return {
            "wanted": need.wanted, "low": need.low, "high": need.high, "ready": ready, "untested": untested,
            "short": max(0, need.wanted - ready - untested),
            "rate": need.rate.value, "rate_low": need.rate.low, "rate_high": need.rate.high, "failures": need.rate.failures,
            "machine_days": need.rate.machine_days, "basis": need.basis, "tail": need.tail, "tail_name": need.tail_name,
            "says": self._words(need, ready, untested),
        }  # fmt: skip

    def _words(self, need: PoolNeed, ready: int, untested: int) -> str:
        """What is missing, what was asked, and what the job does until it comes; "" where nothing is missing."""
        if need.wanted <= ready:
            return ""
        waits = f"{ready} of {need.wanted} standbys are ready"
        waits += f", {untested} more {'waits' if untested == 1 else 'wait'} to be tested and would be used now" if untested else ""
        if need.wanted <= ready + untested:
            return waits
        machines = len(set(self._state.rank_machine.values()))
        shrinks = self._least is not None and machines > self._least
        goes_on = f"goes on with fewer machines, down to {self._least}" if shrinks else "waits for a standby"
        asked = "" if self._work is None else self._work.asked
        asked = asked or "no engine is asked: add one with `minder job add-standby`"
        return f"{waits}; {asked}; at an eviction without one the job {goes_on}"

    def _count(self) -> PoolNeed:
        events = self._ledger.events(kinds=FAILURE_KINDS, since_id=self._since_id)
        self._fold.read(events)
        self._since_id = events[-1].id if events else self._since_id
        rate = rate_with_prior(self._fold.failures, self._fold.machine_days(self._state.name, self._clock.now_s()))
        inside = set(self._state.rank_machine.values())
        machines = max(len(inside), self._state.full_machines)
        (advice,) = advise_standbys([machines], rate, self._config.percentile)
        tail, name = largest_domain(self._domains, inside)
        least = tail or 0 if self._config.cover == "switch" else 0
        wanted, low, high = (max(count, least) for count in (advice.standbys, advice.low, advice.high))
        return PoolNeed(machines, rate, wanted, low, high, tail, name)

    def _ask(self, missing: int) -> None:
        """Once a generation that steps, and only where evictions are carried out."""
        state = self._state
        if self._work is None or not self._config.ask or not state.first_step_seen or self._asked == state.generation:
            return
        if self._is_paused():
            return
        self._asked = state.generation
        operation_id = f"standbys-{state.name}-{state.run}-{state.generation}"
        self._work.ask(operation_id, missing, self._config.ask_deadline_s)

    def _is_paused(self) -> bool:
        history = self._ledger.history(self._state.name, self._clock.now_s())
        return any(pause.scope == "all" or pause.target == self._state.name for pause in history.pauses)
