"""How much the policy may still take: what is left of its budgets, for people and their dashboards. Pure, as the policy is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from minder.act.policy.allowance import allowance
from minder.act.policy.case import breaker_limit, machine_limit
from minder.act.policy.config import PolicyConfig
from minder.act.policy.limits import DAY_S, HOUR_S
from minder.model.history import History, PastEviction
from minder.model.observation import JobView

__all__ = ["Headroom", "headroom"]


@dataclass(frozen=True, slots=True)
class Headroom:
    """What each limit still allows, never below 0: evictions (`job`, `day`, `hour`), machines (`machines`, `breaker`), and restarts."""

    evictions: dict[str, int]
    restarts: int

    @property
    def breaker_is_open(self) -> bool:
        """No eviction passes the breaker now."""
        return self.evictions["breaker"] == 0


def headroom(config: PolicyConfig, history: History, job: JobView, now_s: float, largest_group: int = 1) -> Headroom:
    """largest_group: as in PolicyContext."""

    def since(since_s: float) -> list[PastEviction]:
        return [item for item in history.actions if item.job == job.name and item.action == "evict" and item.time_s >= since_s]

    allowed = allowance(config, len(job.machines), None if history.begun_s is None else now_s - history.begun_s)
    hour, window = since(now_s - HOUR_S), since(now_s - config.breaker_window_s)
    left = {
        "job": allowed.job - len(since(-math.inf)),
        "day": allowed.day - len(since(now_s - DAY_S)),
        "hour": allowed.hour - len(hour),
        "machines": machine_limit(config, largest_group, allowed.hour) - _machines(hour),
        "breaker": breaker_limit(config, len(job.machines)) - _machines(window),
    }
    evictions = {name: max(0, value) for name, value in left.items()}
    return Headroom(evictions, max(0, config.max_restarts - history.restarts))


def _machines(evictions: list[PastEviction]) -> int:
    return sum(len(item.machines) for item in evictions)
