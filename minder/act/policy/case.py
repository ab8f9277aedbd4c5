"""What a stage sees, and what it may say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from minder.act.policy.allowance import Allowance, allowance
from minder.act.policy.blame import FOLLOWS
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.model.decision import Price, Reason, RungName, Size
from minder.model.evidence import Verdict
from minder.model.history import History, PastEviction

__all__ = ["Case", "Ruling", "Stage", "breaker_limit", "machine_limit", "passes", "stops"]


def breaker_limit(config: PolicyConfig, machines: int) -> int:
    """Machines that may be evicted within the window; one is always allowed, or a small job could never be helped."""
    return max(1, int(config.breaker_share * machines))


def machine_limit(config: PolicyConfig, largest_group: int, evictions: int) -> int:
    """Machines that may be evicted within an hour. largest_group: machines of the largest parallel group that can be evicted whole.
    evictions: how many the hour allows."""
    if config.max_machines_per_hour is not None:
        return config.max_machines_per_hour
    return max(1, evictions, 2 * largest_group)


@dataclass(frozen=True, slots=True)
class Case:
    """One verdict with the action that it asks for. `machines`: whom it takes out of their places; the verdict may name others, or none.

    `planned` and `taken`: machines to evict and standbys to use that this very call has decided on already.
    `suspects`: every machine accused now or within the domain window. `preferred`: standbys chosen earlier.
    `rung`: of the ladder, and `trouble`: what it is climbed for.
    """

    verdict: Verdict
    action: Literal["evict", "trial", "restart", "diagnose", "replay"]
    operation_id: str
    history: History
    context: PolicyContext
    config: PolicyConfig
    machines: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()
    taken: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()
    rung: RungName = "evict"
    trouble: str = ""

    @property
    def on_trial(self) -> frozenset[str]:
        """Machines whose trial lasts."""
        return frozenset(trial.machine for trial in self.history.trials if not trial.finding)

    def was_tried(self, machine: str) -> bool:
        """A machine that was on trial within the day without a finding against its ranks is used last."""
        return any(trial.machine == machine and trial.finding != FOLLOWS for trial in self.history.trials)

    @property
    def past(self) -> tuple[PastEviction, ...]:
        """This job's earlier actions, without the one being decided."""
        name = self.context.job.name
        return tuple(item for item in self.history.actions if item.job == name and item.operation_id != self.operation_id)

    def evicted_since(self, since_s: float) -> int:
        """Machines of this job whose eviction began at or after `since_s`, those planned in this call included."""
        past = sum(len(item.machines) for item in self.past if item.action == "evict" and item.time_s >= since_s)
        return past + len(self.planned)

    def evictions_since(self, since_s: float) -> int:
        """This job's evictions that began at or after `since_s`; what is planned in this call goes together with this case, as one."""
        return sum(item.action == "evict" and item.time_s >= since_s for item in self.past)

    @property
    def machine_limit(self) -> int:
        return machine_limit(self.config, self.context.largest_group, self.allowance.hour)

    @property
    def allowance(self) -> Allowance:
        begun_s = self.history.begun_s
        run_s = None if begun_s is None else self.context.now_s - begun_s
        return allowance(self.config, len(self.context.job.machines), run_s)

    @property
    def breaker_limit(self) -> int:
        return breaker_limit(self.config, len(self.context.job.machines))


@dataclass(frozen=True, slots=True)
class Ruling:
    """What one stage says. Without `action` the case goes on to the next stage, with price, replacements or size filled in."""

    say: str
    action: Literal["page", "none"] | None = None
    reason: Reason = "act"
    price: Price | None = None
    replacements: tuple[str, ...] | None = None
    size: Size | None = None


Stage = Callable[[Case], Ruling]


def passes(say: str = "pass") -> Ruling:
    return Ruling(say)


def stops(action: Literal["page", "none"], reason: Reason, say: str) -> Ruling:
    return Ruling(say, action, reason)
