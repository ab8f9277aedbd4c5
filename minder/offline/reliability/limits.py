"""What the limits of a policy let pass by themselves, for simulated months (minder.act.policy.limits has the real stages)."""

from __future__ import annotations

from minder.act.policy.case import breaker_limit, machine_limit
from minder.act.policy.config import PolicyConfig

__all__ = ["Limits"]

_HOUR_S = 3600.0


class Limits:
    """Counts evictions as the policy does. group: machines of a parallel group. response_s: until a person answers a page; one who finds
    the budget of the run spent raises it by as much again."""

    def __init__(self, machines: int, group: int, config: PolicyConfig) -> None:
        self._config = config
        self._breaker = breaker_limit(self._config, machines)
        self._per_hour = machine_limit(self._config, group if group <= self._breaker else 1)
        self._past: list[tuple[float, int]] = []  # time, machines
        self._left = self._config.max_evictions_per_job
        self.response_s = self._config.response_s

    def allow(self, leaving: int, now_s: float, standbys: int) -> bool:
        """Whether these machines go without a person; either way they count as gone from now on."""
        self._past = [item for item in self._past if item[0] >= now_s - _HOUR_S]
        window = [count for time_s, count in self._past if time_s >= now_s - self._config.breaker_window_s]
        allowed = (
            self._left > 0
            and len(self._past) < self._config.max_evictions_per_hour
            and sum(count for _, count in self._past) + leaving <= self._per_hour
            and sum(window) + leaving <= self._breaker
            and leaving <= standbys
        )
        self._left = (self._left or self._config.max_evictions_per_job) - 1
        self._past.append((now_s, leaving))
        return allowed
