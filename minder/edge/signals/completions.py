"""When to look closer: Mycroft's always-on rules over a window of completed operations (arXiv 2509.03018, Algorithm 1).

`minder.diagnose.verdicts.trigger` feeds it with what a live job completes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["WINDOW_S", "Alarm", "Completion", "Normal", "check_window"]

WINDOW_S = 10.0
_SLOW_SHARE = 0.5  # a fifth less is normal where communication overlaps with computation
_LONG_TIMES = 2.0
_LEAST_COMPLETIONS = 3

Alarm = Literal["failure", "straggler"]


@dataclass(frozen=True, slots=True)
class Completion:
    """Operations of one sampled rank that finished: one, or as many as were counted at once."""

    time_s: float
    size_bytes: int
    operations: int = 1


@dataclass(frozen=True, slots=True)
class Normal:
    """What the last quiet window looked like; NaN where the throughput was not known."""

    throughput_bytes_per_s: float
    interval_s: float


def check_window(
    completions: Sequence[Completion], now_s: float, in_flight: bool, normal: Normal | None, window_s: float = WINDOW_S,
    throughput_bytes_per_s: float | None = None,
) -> tuple[Alarm | None, Normal | None]:  # fmt: skip
    """(alarm, what is normal from now on) for the window that ends at `now_s`.

    Failure: operations are in flight and none completed. Straggler: throughput under half of normal, or the time between
    completions over twice. A quiet window becomes the new normal; an alarm does not, nor a window without traffic: that is no data.
    throughput_bytes_per_s: of operations whose sizes are not known, what was measured at the ports; NaN where that is not known either.
    """
    inside = sorted((one for one in completions if now_s - window_s < one.time_s <= now_s), key=lambda one: one.time_s)
    if not inside:
        return ("failure" if in_flight else None), normal
    throughput = throughput_bytes_per_s
    if throughput is None:
        throughput = sum(one.size_bytes for one in inside) / window_s
    is_less = normal is not None and throughput < _SLOW_SHARE * normal.throughput_bytes_per_s  # NaN is not less
    if len(inside) < _LEAST_COMPLETIONS:
        slow = normal is not None and window_s / sum(one.operations for one in inside) > _LONG_TIMES * normal.interval_s
        return ("straggler" if slow else None), normal
    interval_s = (inside[-1].time_s - inside[0].time_s) / sum(one.operations for one in inside[1:])
    if normal is not None and (is_less or interval_s > _LONG_TIMES * max(normal.interval_s, 1e-9)):
        return "straggler", normal
    if math.isnan(throughput) and normal is not None:
        throughput = normal.throughput_bytes_per_s
    return None, Normal(throughput, interval_s)
