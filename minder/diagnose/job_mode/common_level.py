"""Does the whole job stand still, by its telemetry? A hang leaves no machine working, wherever it began.

What training moves is its traffic between GPUs and its tensor work: of the job's median machine they fall to a small share of what they
were. Power, duty cycle and PCIe traffic do not tell: a collective that waits spins.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection
from typing import Literal

import numpy as np

from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds
from minder.model.telemetry import Window

__all__ = ["CommonLevel"]

_WORK = (
    "nvlink_bandwidth_bytes_per_second",
    "rdma_throughput_bytes_per_second",
    "gpu_tensor_activity_ratio",
    "gpu_fp_activity_ratio",
)


class CommonLevel:
    """Feed it every window once. Rows at which the job stands are not learned from, so that a hang never becomes the usual."""

    def __init__(self, limits: Thresholds = THRESHOLDS) -> None:
        self._limits = limits
        self._usual: deque[np.ndarray] = deque(maxlen=limits.level_usual_rows)  # medians of the job, one per metric of _WORK
        self._share = float("nan")
        self.seen = False  # any telemetry at all
        self.since_s: float | None = None  # the first row at which the job stood

    def update(self, window: Window, machines: Collection[str]) -> None:
        """machines: the job's members, whose rows count."""
        members = [m for m, name in enumerate(window.machines) if name in machines]
        places = [window.metrics.index(name) if name in window.metrics else -1 for name in _WORK]
        self.seen = self.seen or bool(window.present_TM[:, members].any())
        for row, time_s in enumerate(window.times_T):
            values_MK = window.values_TMK[row][members]
            self._add(float(time_s), np.array([_median(values_MK[:, k]) if k >= 0 else np.nan for k in places]))

    def state(self, now_s: float) -> Literal["stands", "works", "unknown"]:
        """Now; "unknown" where telemetry has nothing of the job's work, or too little yet."""
        if self.since_s is not None and now_s - self.since_s >= self._limits.level_stands_s:
            return "stands"
        return "unknown" if math.isnan(self._share) else "works"

    def _add(self, time_s: float, level_K: np.ndarray) -> None:
        if np.isnan(level_K).all():
            return
        self._share = self._share_of(level_K)
        if self._share < self._limits.standing_share:
            self.since_s = time_s if self.since_s is None else self.since_s
            return
        self.since_s = None
        self._usual.append(level_K)

    def _share_of(self, level_K: np.ndarray) -> float:
        """The largest share of its usual level that any metric has; NaN while nothing is usual."""
        if len(self._usual) < self._limits.level_fewest_rows:
            return float("nan")
        usual_K = np.array([_median(column) for column in np.array(self._usual).T])
        known_K = (usual_K > 0) & ~np.isnan(level_K)
        return float((level_K[known_K] / usual_K[known_K]).max()) if known_K.any() else float("nan")


def _median(values: np.ndarray) -> float:
    """Of what is known. np.median asks what kind of array it has for ten times as long as it then takes."""
    kept = np.sort(values)  # NaN last
    known = len(kept) - int(np.isnan(kept).sum())
    middle = known // 2
    if not known:
        return float("nan")
    return float(kept[middle]) if known % 2 else float((kept[middle - 1] + kept[middle]) / 2)
