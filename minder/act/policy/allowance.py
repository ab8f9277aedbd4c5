"""How many evictions and restarts a job may have before a person is asked: what the site says, else what its size and its age explain.

A limit that is not set is as much as chance explains of healthy judging: the mean number of failures of so many machines in that time, and
three standard deviations of it; and never less than a job of a few machines gets. What is counted in the ledger changes no limit: a watcher
that is wrong would raise its own. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minder.act.policy.config import PolicyConfig

__all__ = ["Allowance", "allowance"]

_LEAST_OF_JOB, _LEAST_OF_DAY, _LEAST_OF_HOUR, _LEAST_RESTARTS = 8, 8, 4, 12
_DAY_S = 86_400.0
_DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """Evictions of the run so far, within any day and within any hour; restarts within any day."""

    job: int
    day: int
    hour: int
    restarts: int


def allowance(config: PolicyConfig, machines: int, run_s: float | None) -> Allowance:
    """machines: of the job. run_s: how long its run has lasted; None: not known, taken as one that begins.

    >>> allowance(PolicyConfig(), 16, 90 * 86_400.0)
    Allowance(job=8, day=8, hour=4, restarts=12)
    >>> allowance(PolicyConfig(), 1200, 90 * 86_400.0)
    Allowance(job=164, day=8, hour=4, restarts=12)
    """
    per_day = machines * config.failures_per_machine_day
    hour = _given(config.max_evictions_per_hour, max(_LEAST_OF_HOUR, _explained(per_day / 24.0)))
    return Allowance(
        job=_given(config.max_evictions_per_job, max(_LEAST_OF_JOB, _explained(per_day * max(0.0, run_s or 0.0) / _DAY_S))),
        day=_given(config.max_evictions_per_day, max(_LEAST_OF_DAY, _explained(per_day), hour)),
        hour=hour,
        restarts=_given(config.max_restarts_per_day, max(_LEAST_RESTARTS, _explained(per_day))),
    )


def _given(limit: int | None, otherwise: int) -> int:
    return otherwise if limit is None else limit


def _explained(mean: float) -> int:
    return math.ceil(mean + _DEVIATIONS * math.sqrt(mean))
