"""How many signals the rules judged, and how many were lost on the way: for people (metrics) and for the ledger, by the hour."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import Counter as Metric

from minder.record.incidents import kinds

__all__ = ["WHYS", "SignalCount"]

WHYS = ("machine", "too_many", "unreadable", "queue", "rule")
_EVERY_S = 3600.0


class SignalCount:
    """`judged` and `lost` as they come, `note` once per tick. metric: by what became of a signal; write: into the ledger."""

    def __init__(self, metric: Metric, write: Callable[[str, dict[str, Any]], object]) -> None:
        self._metric, self._write = metric, write
        self._judged, self._lost = 0, Counter[str]()
        self._since_s = math.nan

    def judged(self, count: int) -> None:
        self._judged += count
        self._metric.labels("judged").inc(count)

    def lost(self, counts: Mapping[str, int]) -> None:
        for why, count in counts.items():
            self._lost[why] += count
            self._metric.labels(why).inc(count)

    def note(self, now_s: float, over: bool) -> None:
        """over: the job has ended, and what was counted is written down as it is. Raises LedgerError; then the next call writes it."""
        if math.isnan(self._since_s) or now_s < self._since_s:  # the first tick, or the clock was set back
            self._since_s = now_s
        if now_s - self._since_s < _EVERY_S and not over:
            return
        if self._judged or self._lost:
            lost = {why: count for why, count in self._lost.items() if count}
            self._write(kinds.SIGNAL_COUNT, {"since_s": self._since_s, "judged": self._judged, "lost": lost})
        self._judged, self._lost, self._since_s = 0, Counter[str](), now_s
