"""Weighted average scheduling time: from detection to the first new step, weighted by how many machines fail at once (pure).

ByteRobust (arXiv 2509.16293v4, section on warm standbys): the sum over k = 1 to N of w_k T(k), and one percent of T(32), the machines of
a switch. N covers 99 % of days. The weights are the binomial's of k failures among the job's machines within a day, scaled so that they
and the one percent make one: the paper does not print its weights, that is our reading.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from minder.act.recovery.pool_size import binomial_quantile
from minder.record.incidents import Incident

__all__ = ["SchedulingTime", "scheduling_times", "weigh"]

SWITCH = 32
_TAIL = 0.01


@dataclass(frozen=True, slots=True)
class SchedulingTime:
    """seconds: None where nothing was measured. borrowed: the weight for which the time of the nearest measured k was taken."""

    seconds: float | None
    borrowed: float
    recoveries: int


def scheduling_times(incidents: Iterable[Incident]) -> dict[int, list[float]]:
    """Seconds from the first verdict to the first new step, by how many machines were replaced."""
    found: dict[int, list[float]] = defaultdict(list)
    for incident in incidents:
        times = incident.timings
        if incident.evicted and times.detected_s is not None and times.first_step_s is not None:
            found[len(incident.evicted)].append(max(0.0, times.first_step_s - times.detected_s))
    return dict(found)


def weigh(times: Mapping[int, list[float]], machines: int, rate: float) -> SchedulingTime:
    """rate: failures per machine and day.

    >>> weigh({1: [60.0, 80.0]}, 128, 0.0012)
    SchedulingTime(seconds=70.0, borrowed=0.08..., recoveries=2)
    """
    known = {count: sum(seconds) / len(seconds) for count, seconds in times.items() if seconds}
    if not known:
        return SchedulingTime(None, 1.0, 0)
    weights = {**_weights(machines, rate), SWITCH: _TAIL}
    total, borrowed = 0.0, 0.0
    for count, weight in weights.items():
        nearest = min(known, key=lambda item: (abs(item - count), item))
        total += weight * known[nearest]
        borrowed += weight if nearest != count else 0.0
    return SchedulingTime(total, borrowed, sum(len(seconds) for seconds in times.values()))


def _weights(machines: int, rate: float) -> dict[int, float]:
    """Of 1 to N failures in a day, 0.99 in all."""
    most = max(1, binomial_quantile(machines, rate, 0.99))
    chances = {count: math.comb(machines, count) * rate**count * (1.0 - rate) ** (machines - count) for count in range(1, most + 1)}
    whole = math.fsum(chances.values())
    return {count: (1.0 - _TAIL) * chance / whole for count, chance in chances.items()} if whole else {1: 1.0 - _TAIL}
