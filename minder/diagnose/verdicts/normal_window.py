"""What one sampled rank or machine completed, and what is normal for it (minder.diagnose.verdicts.trigger)."""

from __future__ import annotations

import math
from collections import deque

from minder.edge.signals.completions import Completion, Normal

__all__ = ["MOST_KEPT", "Completions"]

MOST_KEPT = 1000
_ROWS = 300  # of telemetry


class Completions:
    """`learn` what a quiet window showed; `completions` are noted by those that know what completes."""

    def __init__(self) -> None:
        self.completions: deque[Completion] = deque(maxlen=MOST_KEPT)
        self.traffic: deque[tuple[float, float]] = deque(maxlen=_ROWS)  # (time, bytes per second)
        self.normal: Normal | None = None
        self._next: tuple[float, Normal] | None = None  # when it was seen; normal after one quiet window more

    def throughput(self, since_s: float) -> float:
        """Mean bytes per second from then on; NaN where telemetry has none of it."""
        values = [value for time_s, value in self.traffic if time_s > since_s]
        return sum(values) / len(values) if values else math.nan

    def learn(self, seen: Normal | None, now_s: float, window_s: float) -> None:
        """Once a window, and one window late: what is half of a fall must not hide the rest of it. seen: None where it alarms."""
        if seen is None or self._next is None:
            self._next = None if seen is None else (now_s, seen)
        elif now_s - self._next[0] >= window_s:
            self.normal, self._next = self._next[1], (now_s, seen)
