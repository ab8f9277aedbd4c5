"""What each machine did while the job was well, and what it does now: the two sides of "more than its own past".

A restart, a stall and a standby's idling say nothing of how a machine behaves in a job that steps, so their rows are no past. A
machine that stays through a restart keeps its past from before it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from minder.model.observation import Observation
from minder.model.telemetry import Window

__all__ = ["Past"]

_PAST_ROWS, _NOW_ROWS = 60, 20
_KEPT_ROWS = 600


class Past:
    """Rows of some metrics, one value per machine. Feed it every observation once. Times are unix seconds."""

    def __init__(self, metrics: Sequence[str]) -> None:
        self._rows: dict[str, deque[tuple[float, bool, dict[str, float]]]] = {name: deque(maxlen=_KEPT_ROWS) for name in metrics}
        self._joined_s: dict[str, float] = {}  # in the job without a break since

    def see(self, observation: Observation, stepping: bool) -> None:
        """stepping: the job takes its steps now, past its warm-up and outside quiet phases."""
        job = observation.job
        if job is not None:
            stayed = {machine: since_s for machine, since_s in self._joined_s.items() if machine in job.machines}
            self._joined_s = dict.fromkeys(job.machines, job.generation_start_s) | stayed
        if observation.window is not None:
            self._remember(observation.window, stepping)

    def before(self, metric: str, since_s: float) -> dict[str, list[float]]:
        """Machine to its newest values from before `since_s`, while it was in the job and the job stepped."""
        found: dict[str, list[float]] = {}
        rows = [row for row in self._rows[metric] if row[1] and row[0] < since_s][-_PAST_ROWS:]
        for time_s, _, known in rows:
            for machine, value in known.items():
                if time_s > self._joined_s.get(machine, -math.inf):
                    found.setdefault(machine, []).append(value)
        return found

    def spacing_s(self, metric: str) -> float:
        """Seconds that one value stands for: rates and shares are means since the scrape before. At least 1."""
        times = [row[0] for row in self._rows[metric]]
        return max(1.0, float(np.median(np.diff(times)))) if len(times) > 1 else 1.0

    def after(self, metric: str, since_s: float) -> dict[str, list[float]]:
        """Machine to its newest values from after `since_s`."""
        found: dict[str, list[float]] = {}
        for _, _, known in [row for row in self._rows[metric] if row[0] > since_s][-_NOW_ROWS:]:
            for machine, value in known.items():
                found.setdefault(machine, []).append(value)
        return found

    def _remember(self, window: Window, stepping: bool) -> None:
        for metric, rows in self._rows.items():
            if metric not in window.metrics:
                continue
            values_TM = window.values_TMK[:, :, window.metrics.index(metric)]
            for row, time_s in enumerate(window.times_T):
                known = {m: float(v) for m, v in zip(window.machines, values_TM[row], strict=True) if np.isfinite(v)}
                if known:
                    rows.append((float(time_s), stepping, known))
