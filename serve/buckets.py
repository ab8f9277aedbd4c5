"""Token buckets: so many requests at once, so many per second after that, for each caller."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Buckets"]

_MOST_CALLERS = 10_000


class Buckets:
    """Who came last is remembered longest: at most 10,000 callers are. clock: seconds, never backwards."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: str) -> float:
        """0.0 if the caller may go on; else the seconds until it may."""
        now_s = self._clock()
        with self._lock:
            left, seen_s = self._left.pop(caller, (self._burst, now_s))
            left = min(self._burst, left + (now_s - seen_s) * self._rate)
            allowed = left >= 1.0
            self._left[caller] = (left - 1.0 if allowed else left, now_s)
            if len(self._left) > _MOST_CALLERS:
                self._left.popitem(last=False)
        return 0.0 if allowed else (1.0 - left) / self._rate
