"""The grid that all machines share, and how long a value may stand on it.

Rows lie at whole multiples of the step since the epoch, so that two aligners agree without talking. A row takes the newest
sample at or before it; a sample stands for its series' own interval and half a step of jitter, and no longer.

The scalar and the vectorised form of each rule do the same floating-point operations in the same order: streaming and
whole-recording alignment must agree to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = [
    "LONGEST_INTERVAL_S",
    "MEMORY",
    "first_row",
    "first_row_N",
    "hold_s",
    "hold_s_N",
    "is_after",
    "learn_interval",
    "learn_interval_N",
]

LONGEST_INTERVAL_S = 120.0  # no site scrapes slower; a longer gap is an outage
MEMORY = 5  # gaps that a series remembers: the lower median of five forgives two outages
_EPSILON = 1e-6  # of a step: 0.1 s steps are not exact in binary


def first_row(time_s: float, step_s: float) -> int:
    """Index of the first grid row at or after a time."""
    return math.ceil(time_s / step_s - _EPSILON)


def is_after(time_s: float, row: int, step_s: float) -> bool:
    """True if a sample of that time is younger than the row: `first_row(time_s, step_s) > row`."""
    return time_s / step_s - _EPSILON > row


def first_row_N(times_N: np.ndarray, step_s: float) -> np.ndarray:
    """`first_row` of many times, as int64."""
    return np.ceil(times_N / step_s - _EPSILON).astype(np.int64)


def learn_interval(gaps_s: Sequence[float], default_s: float) -> float:
    """A series' interval: the lower median of its last few gaps (at most MEMORY), or the default before there is one."""
    if not gaps_s:
        return default_s
    return sorted(gaps_s)[(len(gaps_s) - 1) // 2]


def learn_interval_N(times_N: np.ndarray, series_N: np.ndarray, default_s: float) -> np.ndarray:
    """`learn_interval` after each sample; samples sorted by series, then time."""
    count = len(times_N)
    position_N = _positions(series_N)
    gaps_NG = np.full((count, MEMORY), np.inf)
    gap_N = np.diff(times_N, prepend=times_N[:1])
    for back in range(min(MEMORY, max(count - 1, 0))):
        known_N = position_N > back
        shifted_N = np.roll(gap_N, back)
        gaps_NG[known_N, back] = shifted_N[known_N]
    gaps_NG.sort(axis=1)
    known = np.minimum(position_N, MEMORY)
    chosen_N = gaps_NG[np.arange(count), np.maximum((known - 1) // 2, 0)]
    return np.where(position_N == 0, default_s, chosen_N)


def hold_s(interval_s: float, step_s: float) -> float:
    """How long a sample stands: its series' interval and a margin of half a step, or a tenth of the interval if that is more."""
    effective_s = max(min(interval_s, LONGEST_INTERVAL_S), step_s)
    return effective_s + max(0.5 * step_s, 0.1 * effective_s)


def hold_s_N(intervals_N: np.ndarray, step_s: float) -> np.ndarray:
    """`hold_s` of many intervals."""
    effective_N = np.maximum(np.minimum(intervals_N, LONGEST_INTERVAL_S), step_s)
    return np.asarray(effective_N + np.maximum(0.5 * step_s, 0.1 * effective_N))


def _positions(series_N: np.ndarray) -> np.ndarray:
    """How many earlier samples of the same series stand before each one (sorted input)."""
    index_N = np.arange(len(series_N))
    starts_N = np.where(np.diff(series_N, prepend=-1) != 0, index_N, 0)
    return np.asarray(index_N - np.maximum.accumulate(starts_N))
