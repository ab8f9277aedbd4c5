"""When a machine turned odd, and whether it did so all by itself while the training stood.

A fault comes before the standstill that it causes. Weak evidence is heard late, as it must be smoothed for minutes first, and a link that
flaps is odd whenever the job moves. But a machine that stood with its peers while they had long been standing, and then plainly left them,
did not stop them. K metrics, M machines, X machines that stand out in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.reference import ReferenceState
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per

if TYPE_CHECKING:
    from minder.diagnose.detectors.deviants import Deviants
    from minder.diagnose.detectors.phases import Phase
    from minder.diagnose.detectors.presence import Seen
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

    reference: ReferenceState
    score: ScoreState
    state: OnsetState

    def update(self, row: Row) -> None:
        if len(row.deviants.machines_X) and row.deviants.counted_KX.any():
            row.afterwards_X = self.turned_odd(row.deviants, row.phase, row.seen, row.time_s)

    def turned_odd(self, deviants: Deviants, phase: Phase, seen: Seen, time_s: float) -> np.ndarray:
        """Mask (X,): turned odd afterwards. To be asked once per row."""
        x = deviants.machines_X
        new_X = np.isnan(self.score.since_M[x])
        if new_X.any():
            long_s = _N.long_s + _N.long_intervals * seen.interval_s
            stands = phase.stalled and not phase.idle and phase.since_move_s > long_s and time_s - phase.stands_since_s > long_s
            slow_KX = np.nan_to_num(self.reference.all_slow.smooth_KM[:, x]) * np.sign(deviants.newest_KX)
            gradual_KX = (deviants.counted_KX > 0.0) & ~(slow_KX < _N.sharp * np.abs(deviants.newest_KX))
            heard_X = seen.since_news_M[x] <= _N.heard_intervals * seen.interval_s
            self.state.afterwards_M[x[new_X]] = (stands & heard_X & ~gradual_KX.any(axis=0))[new_X]
        return np.asarray(self.state.afterwards_M[x] > 0.0)
