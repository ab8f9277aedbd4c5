"""How far each machine stands from the middle of all, so that those of which nothing else is known have an order, too.

Most scores are 0 most of the time. Who asks which machine to look at first is answered by the plainest of all comparisons, far below
what accuses. K metrics, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import Ordered
from minder.diagnose.detectors.presence import PresenceState
from minder.diagnose.detectors.row import Row
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per

__all__ = ["Ranking", "RankingState"]


@dataclass(frozen=True, slots=True)
class RankingNumbers:
    """Section [ranking] of detector.toml: what each number is stands there."""

    most: float
    step_s: float


_N = numbers("ranking", RankingNumbers)


@dataclass(slots=True)
class RankingState(State):
    least_K: np.ndarray = per("K", np.inf)  # ever seen of any machine
    most_K: np.ndarray = per("K", -np.inf)
    apart_M: np.ndarray = per("M")  # 0 to 1, the mean of how far the machine's metrics are from the middle of all, in those ranges
    looked_s: float = -np.inf  # time of that


class Ranking(Stage):
    """The order of machines whose scores are near 0: `row.ranked_M`."""

    presence: PresenceState
    score: ScoreState
    state: RankingState

    def update(self, row: Row) -> None:
        if row.time_s - self.state.looked_s >= _N.step_s:  # an order need not be made anew every second
            self.state.looked_s, self.state.apart_M = row.time_s, self._apart_M()
        row.ranked_M = np.maximum(self.score.score_M, _N.most * self.config.patience_s * self.state.apart_M)

    def _apart_M(self) -> np.ndarray:
        values_KM = self.presence.last_KM
        if not values_KM.size:
            return np.zeros(values_KM.shape[1])
        self.state.least_K = np.fmin(self.state.least_K, np.fmin.reduce(values_KM, axis=1))
        self.state.most_K = np.fmax(self.state.most_K, np.fmax.reduce(values_KM, axis=1))
        range_K = self.state.most_K - self.state.least_K
        moved_K = range_K > 0.0
        apart_KM = np.abs(values_KM - Ordered(values_KM).median_K()[:, None])
        share_KM = apart_KM[moved_K] / range_K[moved_K, None]
        known_KM = ~np.isnan(share_KM)
        return np.asarray(np.where(known_KM, share_KM, 0.0).sum(axis=0) / np.maximum(known_KM.sum(axis=0), 1))
