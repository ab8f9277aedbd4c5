"""What stays as it is: a machine that stands apart in one way alone, while the training is hardly slowed, too little to be a plain change.

Minutes of it are evidence that seconds are not: jitters, wandering activity and housekeeping pass. Minder asks for four minutes of the
same candidate for the same reason (section 6, continuity). M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.evidence import distinctness
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.strength import waited_M

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Persistence", "PersistenceState"]


@dataclass(frozen=True, slots=True)
class PersistenceNumbers:
    """Section [persistence] of detector.toml: what each number is stands there."""

    clear: float
    forget_s: float
    forgotten_s: float
    most_s: float
    felt: float
    most_intervals: float


_N = numbers("persistence", PersistenceNumbers)


@dataclass(slots=True)
class PersistenceState(State):
    persistence_s_M: np.ndarray = per("M")  # seconds, forgotten where it is interrupted


class Persistence(Stage):
    """The machine that has stood apart, alone, for long enough to be convicted. While the training is slowed or rests, other rules hold."""

    state: PersistenceState

    def update(self, row: Row) -> None:
        if row.calm:
            return
        phase, status = row.phase, row.status
        if phase.steady and not (status.outage or phase.effect >= _N.felt):
            self.update_persistence(row.strength.clear_M, waited_M(row.strength, status), _N.most_intervals * status.interval_s)

    def update_persistence(self, clear_M: np.ndarray, waited_M: np.ndarray, most_s: float) -> None:
        """Sums up `persistence_s_M`, the seconds for which each machine has stood apart, alone. clear_M: 0..1, its evidence in this row;
        waited_M: seconds since its last news, 0 without, of which most_s count. Rows that say nothing are left out: they neither add nor
        interrupt."""
        persistence_s_M = self.state.persistence_s_M
        x = np.flatnonzero((persistence_s_M > 0.0) | (clear_M >= _N.clear))
        if len(x):  # few: speed is memory traffic
            waited_X = np.minimum(waited_M[x], most_s)
            apart_X = np.where(clear_M[x] >= _N.clear, distinctness(clear_M)[x], 0.0)
            kept_X = np.where(apart_X > 0.0, 1.0, np.exp(-waited_X / _N.forget_s))
            persistence_s_X = np.minimum(persistence_s_M[x] * kept_X + apart_X * waited_X, self.config.slower * _N.most_s)
            persistence_s_M[x] = np.where((apart_X > 0.0) | (persistence_s_X >= _N.forgotten_s), persistence_s_X, 0.0)
