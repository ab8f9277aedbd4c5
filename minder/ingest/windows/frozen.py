"""Stuck sensors: a gauge that repeats its last value bit by bit, though it used to move with every sample, is no data.

Only where a standstill cannot be the truth: a rate of zero, a ratio at its bound, a counter, the job's own metrics and the
socket queues stand still exactly when the job hangs, and that must be seen.
"""

from __future__ import annotations

import numpy as np

from minder.model.metrics import Metric

__all__ = ["FROZEN_AFTER", "FrozenWatch", "can_freeze", "find_frozen_N"]

FROZEN_AFTER = 30  # identical samples in a row
VARIED_FOR = 30  # samples before them that were seen to vary
LIVELY_RUN = 3  # "varies": never more than so many identical ones in a row
_FAMILIES = frozenset({"host", "gpu", "interconnect", "network"})


def can_freeze(metric: Metric) -> bool:
    """True for gauges whose standstill is a sensor's fault and not the job's state."""
    return metric.family in _FAMILIES and not metric.counter


class FrozenWatch:
    """One series' runs of identical values; constant work per sample."""

    __slots__ = ("_high", "_last", "_longest", "_low", "_run", "_seen")

    def __init__(self, metric: Metric) -> None:
        self._low, self._high = metric.low, metric.high
        self._last = np.nan
        self._run = 0
        self._seen = 0
        self._longest = 0

    def is_frozen(self, value: float) -> bool:
        """Take the next value; True if it is one too many of the same."""
        if value == self._last:
            self._run += 1
        else:
            if self._run > self._longest and not self._is_natural(self._last):
                self._longest = self._run
            self._seen += self._run
            self._run = 1
            self._last = value
        if self._run <= FROZEN_AFTER:
            return False
        return self._seen >= VARIED_FOR and self._longest <= LIVELY_RUN and not self._is_natural(value)

    def _is_natural(self, value: float) -> bool:
        return value == 0.0 or value == self._low or value == self._high


def find_frozen_N(values_N: np.ndarray, series_N: np.ndarray, metric: Metric) -> np.ndarray:
    """`FrozenWatch.is_frozen` for every sample of many series of one metric; samples sorted by series, then time."""
    count = len(values_N)
    if count == 0:
        return np.zeros(0, dtype=bool)
    index_N = np.arange(count)
    new_series_N = np.diff(series_N, prepend=-1) != 0
    new_run_N = new_series_N | (values_N != np.concatenate(([np.nan], values_N[:-1])))
    run_N = np.cumsum(new_run_N) - 1
    starts_R = index_N[new_run_N]
    lengths_R = np.diff(starts_R, append=count)
    series_R = series_N[starts_R]
    value_R = values_N[starts_R]
    natural_R = (value_R == 0.0) | (value_R == metric.low) | (value_R == metric.high)
    longest_R = _longest_before(np.where(natural_R, 0, lengths_R), series_R)
    first_R = np.maximum.accumulate(np.where(new_series_N, index_N, 0))[starts_R]
    lively_R = (starts_R - first_R >= VARIED_FOR) & (longest_R <= LIVELY_RUN) & ~natural_R
    position_N = index_N - starts_R[run_N] + 1
    return np.asarray((position_N > FROZEN_AFTER) & lively_R[run_N])


def _longest_before(lengths_R: np.ndarray, series_R: np.ndarray) -> np.ndarray:
    """The longest earlier run of the same series, 0 for its first. Offsets per series keep one scan from crossing series."""
    ordinal_R = np.cumsum(np.diff(series_R, prepend=-1) != 0)
    offset_R = ordinal_R * (int(lengths_R.max()) + 1)
    reached_R = np.maximum.accumulate(lengths_R + offset_R)
    before_R = np.concatenate(([0], reached_R[:-1]))
    return np.asarray(np.maximum(before_R - offset_R, 0))
