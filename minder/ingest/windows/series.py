"""One series (a metric of a machine or of one of its devices) as it streams in."""

from __future__ import annotations

import bisect
import functools
import math

from minder.ingest.windows.frozen import FrozenWatch, can_freeze
from minder.ingest.windows.grid import MEMORY, hold_s, is_after, learn_interval
from minder.model.metrics import Metric

__all__ = ["Series"]


class Series:
    """Waiting samples, the one that stands now, and what was learned of the series' interval. Constant work per sample."""

    __slots__ = ("_frozen", "_gaps_s", "_step_s", "_time_s", "_until_s", "_value", "_waiting")

    def __init__(self, step_s: float, metric: Metric | None) -> None:
        self._step_s = step_s
        self._waiting: list[tuple[float, float]] = []
        self._gaps_s: tuple[float, ...] = ()
        self._time_s = -math.inf
        self._until_s = -math.inf
        self._value = math.nan
        self._frozen = FrozenWatch(metric) if metric is not None and can_freeze(metric) else None

    def push(self, time_s: float, value: float) -> bool:
        """Take a sample, in any order; False if it is a duplicate or older than the one that stands."""
        if time_s <= self._time_s:
            return False
        if not self._waiting or time_s > self._waiting[-1][0]:
            self._waiting.append((time_s, value))
            return True
        at = bisect.bisect_left(self._waiting, time_s, key=lambda item: item[0])
        if self._waiting[at][0] == time_s:
            return False
        self._waiting.insert(at, (time_s, value))
        return True

    def stand_at(self, row: int) -> tuple[bool, float]:
        """(a sample stands, its value) at a grid row; rows come in increasing order."""
        if self._waiting:
            taken = 0
            for time_s, value in self._waiting:
                if is_after(time_s, row, self._step_s):
                    break
                self._advance(time_s, value)
                taken += 1
            if taken:
                del self._waiting[:taken]
        held = row * self._step_s < self._until_s
        return held, self._value if held else math.nan

    def _advance(self, time_s: float, value: float) -> None:
        if self._time_s > -math.inf:
            self._gaps_s = (*self._gaps_s[1 - MEMORY :], time_s - self._time_s)
        self._time_s = time_s
        frozen = self._frozen is not None and self._frozen.is_frozen(value)
        self._value = math.nan if frozen else value
        self._until_s = time_s + _hold_s(self._gaps_s, self._step_s)


@functools.lru_cache(maxsize=1024)  # all series of one scrape have the same gaps
def _hold_s(gaps_s: tuple[float, ...], step_s: float) -> float:
    return hold_s(learn_interval(gaps_s, step_s), step_s)
