"""What the limits of a policy let pass by themselves, for simulated months (minder.act.policy.limits has the real stages)."""

from __future__ import annotations

from minder.act.policy.allowance import allowance
from minder.act.policy.case import breaker_limit, machine_limit
from minder.act.policy.config import PolicyConfig

__all__ = ["Limits"]

_HOUR_S, _DAY_S = 3600.0, 86_400.0


class Limits:
    """Counts evictions as the policy does, of a run that begins at 0. group: machines of a parallel group. response_s: until a person
    answers a page; one who finds the budget of the run spent raises it by as much again."""

    def __init__(self, machines: int, group: int, config: PolicyConfig) -> None:
        self._config, self._machines = config, machines
        self._breaker = breaker_limit(config, machines)
        self._group = group if group <= self._breaker else 1
        self._past: list[tuple[float, int]] = []  # time, machines; of the last day
        self._used = self._raised = 0
        self.response_s = config.response_s

    def allow(self, leaving: int, now_s: float, standbys: int) -> bool:
        """Whether these machines go without a person; either way they count as gone from now on."""
        limits = allowance(self._config, self._machines, now_s)
        self._past = [item for item in self._past if item[0] >= now_s - _DAY_S]
        hour = [count for time_s, count in self._past if time_s >= now_s - _HOUR_S]
        window = [count for time_s, count in self._past if time_s >= now_s - self._config.breaker_window_s]
        left = limits.job + self._raised - self._used
        allowed = (
            left > 0
            and len(self._past) < limits.day
            and len(hour) < limits.hour
            and sum(hour) + leaving <= machine_limit(self._config, self._group, limits.hour)
            and sum(window) + leaving <= self._breaker
            and leaving <= standbys
        )
        self._raised += limits.job if left <= 0 else 0
        self._used += 1
        self._past.append((now_s, leaving))
        return allowed
