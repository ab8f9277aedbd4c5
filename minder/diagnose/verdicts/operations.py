"""What NCCL completes on one machine, as its agent counts it (minder.edge.agent.nccl): for the trigger, closer than steps."""

from __future__ import annotations

import math
from collections import deque

from minder.diagnose.verdicts.normal_window import Completions
from minder.edge.signals.completions import WINDOW_S, Alarm, Completion, check_window

__all__ = ["Operations"]

_GAPS = 100  # looks at which something had completed
_TIMES = 3.0  # the longest gap of late: a job that talks once in a step is silent in between


class Operations(Completions):
    """Feed it every row of telemetry. Times are those of the trigger's clock."""

    def __init__(self) -> None:
        super().__init__()
        self._total = math.nan
        self._gaps: deque[float] = deque(maxlen=_GAPS)
        self._begun_s = math.nan

    def note(self, total: float, bytes_per_s: float, watched_s: float) -> None:
        """total: operations so far; a fall is an agent that began anew. bytes_per_s: of their messages, NaN if not told."""
        grown, self._total = total - self._total, total
        if math.isnan(self._begun_s):
            self._begun_s = watched_s
        if math.isfinite(bytes_per_s):
            self.traffic.append((watched_s, bytes_per_s))
        if grown > 0:  # not NaN
            if self.completions:
                self._gaps.append(watched_s - self.completions[-1].time_s)
            self.completions.append(Completion(watched_s, 0, int(grown)))

    def window_s(self) -> float:
        return max(WINDOW_S, _TIMES * max(self._gaps, default=0.0))

    def newest_s(self) -> float:
        """When the last operation was counted; -inf before the first."""
        return self.completions[-1].time_s if self.completions else -math.inf

    def check(self, watched_s: float) -> Alarm | None:
        """Worth nothing before `normal` is known: a machine whose records never came, or came once, says nothing."""
        window_s = self.window_s()
        if not self.completions or watched_s - self._begun_s < window_s:
            return None
        alarm, seen = check_window(self.completions, watched_s, True, self.normal, window_s, self.throughput(watched_s - window_s))
        self.learn(None if alarm else seen, watched_s, window_s)
        return alarm
