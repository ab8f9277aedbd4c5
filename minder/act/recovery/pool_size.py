"""How many machines should stand by: a percentile of the binomial over machines and their failure rate (pure).

The rule is ByteRobust's (arXiv 2509.16293, warm standbys): failures of one day are independent, the pool
covers the P99 of their number, and is filled up again in the background.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from minder.model.errors import BadInputError

__all__ = [
    "DEFAULT_RATE",
    "FEW_FAILURES",
    "PRIOR_MACHINE_DAYS",
    "FailureRate",
    "PoolConfig",
    "StandbyAdvice",
    "advise_standbys",
    "binomial_quantile",
    "estimate_rate",
    "garwood",
    "given_rate",
    "rate_with_prior",
]

DEFAULT_RATE = 0.0012  # per machine and day: the middle of what reproduces the paper's pools of 2, 2, 3 and 4
PRIOR_MACHINE_DAYS = 1.0 / DEFAULT_RATE  # the published rate weighs as much as one failure that was counted: in so many machine-days
_HIGHEST_RATE = 0.99  # a count over minutes may give more than one failure a day; a chance cannot be more than one
FEW_FAILURES = 10  # with fewer the interval spans a factor of four and more


class PoolConfig(BaseModel):
    """percentile: how surely the standbys cover a day's failures. cover: "failures", or "switch" where the pool also has to replace all
    machines behind one switch. ask: whether the engine is asked for standbys that are missing. ask_deadline_s: what has not come by then is
    not wanted any more, until the next generation.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    percentile: float = Field(default=99.0, gt=0, lt=100)
    cover: Literal["failures", "switch"] = "failures"
    ask: bool = True
    ask_deadline_s: float = Field(default=600.0, gt=0)


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Failures per machine and day with their 95 % interval (Garwood 1936, exact); failures, machine_days: what it was counted from."""

    value: float
    low: float
    high: float
    failures: int
    machine_days: float

    @property
    def has_days(self) -> bool:
        """Whether it says anything of a day: a count over minutes may stand for several failures of each machine and day."""
        return self.high < 1.0


@dataclass(frozen=True, slots=True)
class StandbyAdvice:
    """Pool for a job of `machines`; low and high are those of the rate's interval (the same where the rate was given)."""

    machines: int
    standbys: int
    low: int
    high: int
    expected_per_day: float


def binomial_quantile(machines: int, rate: float, share: float) -> int:
    """The smallest k for which at most k of `machines` fail in a day with probability `share` or more.

    >>> [binomial_quantile(machines, 0.0012, 0.99) for machines in (128, 256, 512, 1024)]
    [2, 2, 3, 4]

    Raises BadInputError for numbers that no fleet has.
    """
    if machines < 1:
        raise BadInputError(f"{machines} machines: a job has at least one")
    if not 0.0 <= rate < 1.0:
        raise BadInputError(f"rate {rate:g}: give failures per machine and day, from 0 to less than 1, such as {DEFAULT_RATE}")
    if not 0.0 < share < 1.0:
        raise BadInputError(f"percentile {share * 100:g}: give one between 0 and 100, such as 99")
    if rate == 0.0:
        return 0
    log_chance, odds = machines * math.log1p(-rate), rate / (1.0 - rate)
    total = math.exp(log_chance)
    failed = 0
    while total < share and failed < machines:
        log_chance += math.log((machines - failed) / (failed + 1) * odds)
        failed += 1
        total += math.exp(log_chance)
    return failed


def advise_standbys(machines: Sequence[int], rate: FailureRate, percentile: float = 99.0) -> list[StandbyAdvice]:
    """One pool per size of job. Raises BadInputError."""
    found = []
    for count in machines:
        most = _HIGHEST_RATE if rate.machine_days else math.inf
        pools = [binomial_quantile(count, min(each, most), percentile / 100.0) for each in (rate.value, rate.low, rate.high)]
        found.append(StandbyAdvice(count, pools[0], pools[1], pools[2], count * rate.value))
    return found


def given_rate(rate: float) -> FailureRate:
    """A rate that is given: no interval."""
    return FailureRate(rate, rate, rate, 0, 0.0)


def estimate_rate(failures: int, machine_days: float) -> FailureRate:
    """Out of a count over some machine-days, more than 0."""
    low, high = garwood(failures)
    return FailureRate(failures / machine_days, low / machine_days, high / machine_days, failures, machine_days)


def rate_with_prior(failures: int, machine_days: float) -> FailureRate:
    """The published rate, corrected by what was counted: one failure in 833 machine-days, and the site's own. Without a count it is the
    published rate; after some thousand machine-days it is the site's.

    >>> rate_with_prior(0, 0.0).value, round(rate_with_prior(40, 10_000.0).value, 4)
    (0.0012, 0.0038)
    """
    counted = estimate_rate(failures + 1, machine_days + PRIOR_MACHINE_DAYS)
    return FailureRate(counted.value, counted.low, counted.high, failures, machine_days)


def garwood(events: int, sure: float = 0.95) -> tuple[float, float]:
    """Exact interval of a Poisson mean of which `events` were seen.

    >>> [round(edge, 2) for edge in garwood(0)], [round(edge, 2) for edge in garwood(10)]
    ([0.0, 3.69], [4.8, 18.39])
    """
    tail = (1.0 - sure) / 2.0
    low = 0.0 if events == 0 else _poisson_mean(events - 1, 1.0 - tail)
    return low, _poisson_mean(events, tail)


def _poisson_mean(events: int, chance: float) -> float:
    """The mean at which `events` or fewer are seen with this probability."""
    low, high = 0.0, 10.0 + 3.0 * events + 10.0 * math.sqrt(events)
    for _ in range(100):
        mean = (low + high) / 2.0
        terms = (math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(events + 1))
        low, high = (mean, high) if math.fsum(terms) > chance else (low, mean)
    return high
