"""What is usual changes slowly: a few times a minute it is learned anew, from rows and machines that say nothing else.

K metrics, M machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import Baseline, BaselineNumbers, Lesson, outside_KM
from minder.diagnose.detectors.group_state import GroupState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phases
from minder.diagnose.detectors.score import ScoreNumbers, ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Learning", "LearningState"]


@dataclass(frozen=True, slots=True)
class LearningNumbers:
    """Section [learning] of detector.toml: what each number is stands there."""

    grouped_s: float
    recovers: float
    back_s: float
    felt: float
    warmup_intervals: float


_N = numbers("learning", LearningNumbers)
_BASELINE = numbers("baseline", BaselineNumbers)
_SCORE = numbers("score", ScoreNumbers)


@dataclass(slots=True)
class LearningState(State):
    odd_KM: np.ndarray = per("KM")  # seconds for which a series has been far off
    waited_s: float = 3.0  # since anything was last learned; the first row teaches


class Learning(Stage):
    """Works after the judge has spoken."""

    phases: Phases
    baseline: Baseline
    groups: GroupState
    score: ScoreState
    state: LearningState

    def learn(self, row: Row) -> None:
        waited_s = min(self.state.waited_s, _BASELINE.step_s) + row.status.gap_s
        self.state.waited_s = 0.0 if waited_s >= _BASELINE.step_s else waited_s
        if waited_s >= _BASELINE.step_s:
            self._learn_row(row, waited_s)

    def _learn_row(self, row: Row, gap_s: float) -> None:
        phase, layout = row.phase, row.layout
        self.phases.learn_common(row.center_K, gap_s, phase)
        far_KM = self._far(row)
        odd_KM = np.maximum(self.state.odd_KM - np.float32(_N.recovers * gap_s), np.float32(0.0))
        if far_KM.any():
            odd_KM = np.where(far_KM, self.state.odd_KM + np.float32(gap_s), odd_KM)
        self.state.odd_KM = odd_KM
        if not phase.steady or phase.effect > _N.felt:
            return
        barred_M = (self.score.score_M > _SCORE.suspicious * self.config.patience_s) | (self.groups.grouped_s_M > _N.grouped_s)
        if row.barred_M is not None:
            barred_M |= row.barred_M
        moved_KM = odd_KM >= self.config.relearn_s
        if row.outliers.back_KX is not None:  # what was learned of it was odd
            x = row.outliers.machines_X
            moved_KM[:, x] |= row.outliers.back_KX & (odd_KM[:, x] >= _N.back_s)
        withheld_KM = (far_KM & ~moved_KM) | barred_M
        taught_KM = ~withheld_KM
        if row.status.usable_KM is not None:
            taught_KM &= ~np.isnan(row.scaled_KM)
        warmup_s = max(self.config.warmup_s, _N.warmup_intervals * row.status.interval_s)
        lesson = Lesson(taught_KM, gap_s, warmup_s, moved_KM, layout.stages.tainted_KM(withheld_KM))
        self.baseline.learn_usual(layout.traits, row.scaled_KM - row.center_K[:, None].astype(np.float32), lesson, layout.staged)
        layout.stages.middles.clear()

    def _far(self, row: Row) -> np.ndarray:
        """(K, M): too far from the peers to be learned, by every yardstick that counts for the machine."""
        state, z, stages, traits = self.baseline.state, self.config.far_z, row.layout.stages, row.traits
        far_KM = outside_KM(state.all_quick, z) | outside_KM(state.all_slow, z)
        if row.layout.staged:
            stage_KM = outside_KM(state.stage_quick, z) | outside_KM(state.stage_slow, z)
            far_KM = (far_KM | stages.large_M) & (stage_KM | stages.lonely_M | (traits.congestion_K[:, None] & ~stages.large_M))
        return np.asarray(far_KM)
