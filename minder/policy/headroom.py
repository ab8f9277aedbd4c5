"""How much the policy may still take: what is left of its budgets, for people and their dashboards. Pure, as the policy is."""

from __future__ import annotations

import math
from dataclasses import dataclass

from minder.policy.case import breaker_limit
from minder.policy.config import PolicyConfig
from minder.policy.limits import HOUR_S
from minder.types import History

__all__ = ["Headroom", "headroom"]


@dataclass(frozen=True, slots=True)
class Headroom:
    """Machines that may still be evicted by each limit (`job`, `hour`, `breaker`), and restarts that are left; never below 0."""

    evictions: dict[str, int]
    restarts: int

    @property
    def breaker_is_open(self) -> bool:
        """No eviction passes the breaker now."""
        return self.evictions["breaker"] == 0


def headroom(config: PolicyConfig, history: History, job: str, machines: int, now_s: float) -> Headroom:
    """`machines`: how many the job has now."""

    def left(limit: int, since_s: float) -> int:
        own = (item for item in history.actions if item.job == job and item.action == "evict" and item.time_s >= since_s)
        return max(0, limit - sum(len(item.machines) for item in own))

    evictions = {
        "job": left(config.max_evictions_per_job, -math.inf),
        "hour": left(config.max_evictions_per_hour, now_s - HOUR_S),
        "breaker": left(breaker_limit(config, machines), now_s - config.breaker_window_s),
    }
    return Headroom(evictions, max(0, config.max_restarts - history.restarts))
