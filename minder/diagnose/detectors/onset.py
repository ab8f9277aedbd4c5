"""When a machine turned odd, and whether it did so all by itself while the training stood.

A fault comes before the standstill that it causes. Weak evidence is heard late, as it must be smoothed for minutes first, and a link that
flaps is odd whenever the job moves. But a machine that stood with its peers while they had long been standing, and then plainly left them,
did not stop them. K metrics, M machines, X machines that stand out in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per

if TYPE_CHECKING:
    from minder.diagnose.detectors.outliers import Outliers
    from minder.diagnose.detectors.phases import Phase
    from minder.diagnose.detectors.presence import RowStatus
    from minder.diagnose.detectors.row import Row

__all__ = ["Onset", "OnsetState"]


@dataclass(frozen=True, slots=True)
class OnsetNumbers:
    """Section [onset] of detector.toml: what each number is stands there."""

    sharp: float
    long_s: float
    long_intervals: float
    heard_intervals: float


_N = numbers("onset", OnsetNumbers)


@dataclass(slots=True)
class OnsetState(State):
    afterwards_M: np.ndarray = per("M")  # 1: it turned odd while its peers had been standing for long


class Onset(Stage):
    """Who turned odd all by itself while the training stood."""

    baseline: BaselineState
    score: ScoreState
    state: OnsetState

    def update(self, row: Row) -> None:
        if len(row.outliers.machines_X) and row.outliers.counted_KX.any():
            row.afterwards_X = self.turned_odd(row.outliers, row.phase, row.status, row.time_s)

    def turned_odd(self, outliers: Outliers, phase: Phase, status: RowStatus, time_s: float) -> np.ndarray:
        """Mask (X,): turned odd afterwards. To be asked once per row."""
        x = outliers.machines_X
        new_X = np.isnan(self.score.since_M[x])
        if new_X.any():
            long_s = _N.long_s + _N.long_intervals * status.interval_s
            stands = phase.stalled and not phase.idle and phase.since_move_s > long_s and time_s - phase.stands_since_s > long_s
            slow_KX = np.nan_to_num(self.baseline.all_slow.smooth_KM[:, x]) * np.sign(outliers.newest_KX)
            gradual_KX = (outliers.counted_KX > 0.0) & ~(slow_KX < _N.sharp * np.abs(outliers.newest_KX))
            heard_X = status.since_news_M[x] <= _N.heard_intervals * status.interval_s
            self.state.afterwards_M[x[new_X]] = (stands & heard_X & ~gradual_KX.any(axis=0))[new_X]
        return np.asarray(self.state.afterwards_M[x] > 0.0)
