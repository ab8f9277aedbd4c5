"""Have the live metrics left the range that a model was trained on? New GPUs, new firmware, a unit that changed: no fault of a machine.

Per metric, the share of machines outside of the range is smoothed; more than half for long is reported, once, until it has returned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from minder.model.telemetry import Window

__all__ = ["Drift", "DriftConfig", "DriftMonitor"]


@dataclass(frozen=True, slots=True)
class DriftConfig:
    """share: of the machines' values outside, on average over about pace_s, for hold_s. A fault or a pause of minutes is no drift."""

    share: float = 0.5
    pace_s: float = 600.0
    hold_s: float = 1800.0


@dataclass(frozen=True, slots=True)
class Drift:
    """One metric that left its range. median: of all machines in the newest row; low, high: the range; base units, unix seconds."""

    time_s: float
    metric: str
    share: float
    median: float
    low: float
    high: float
    since_s: float


@dataclass(slots=True)
class _Track:
    share: float = 0.0
    seen_s: float | None = None
    since_s: float | None = None
    reported: bool = False


class DriftMonitor:
    """Feed every window, in time order. Rows without data say nothing: neither drift nor its end."""

    def __init__(self, ranges: Mapping[str, tuple[float, float]], config: DriftConfig | None = None) -> None:
        self.config = config or DriftConfig()
        self._ranges = dict(ranges)
        self._tracks = {name: _Track() for name in self._ranges}

    def observe(self, window: Window) -> list[Drift]:
        """The metrics that are out of range since long enough, each reported once."""
        found = []
        for k, name in enumerate(window.metrics):
            if name in self._ranges:
                found += [drift for t in range(len(window.times_T)) if (drift := self._follow(name, window, t, k)) is not None]
        return found

    def _follow(self, name: str, window: Window, t: int, k: int) -> Drift | None:
        values = window.values_TMK[t, :, k]
        values = values[np.isfinite(values)]
        if not len(values):
            return None
        time_s, track = float(window.times_T[t]), self._tracks[name]
        low, high = self._ranges[name]
        outside = float(((values < low) | (values > high)).mean())
        gap_s = 0.0 if track.seen_s is None else max(0.0, time_s - track.seen_s)
        track.seen_s = time_s
        track.share += (outside - track.share) * (1.0 - math.exp(-min(gap_s, self.config.pace_s) / self.config.pace_s))
        if track.share <= self.config.share:
            track.since_s = None
            track.reported = track.reported and track.share > self.config.share / 4.0
            return None
        track.since_s = time_s if track.since_s is None else track.since_s
        if track.reported or time_s - track.since_s < self.config.hold_s:
            return None
        track.reported = True
        return Drift(time_s, name, track.share, float(np.median(values)), low, high, track.since_s)
