"""Work begins after a rest that was taken for the usual level: what was learned of the rest says nothing of work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.clocks import ClockState
from minder.diagnose.detectors.first_mover import FirstMoverState
from minder.diagnose.detectors.large_clock_offsets import LargeClockOffsetState
from minder.diagnose.detectors.learning import LearningState
from minder.diagnose.detectors.peers import Ordered
from minder.diagnose.detectors.persistence import PersistenceState
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.skew_correction import SkewCorrectionState
from minder.diagnose.detectors.stage import Stage

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["BaselineReset"]


class BaselineReset(Stage):
    """Forgets what is usual where `row.phase.picks_up`."""

    baseline: BaselineState
    first_mover: FirstMoverState
    persistence: PersistenceState
    skew_correction: SkewCorrectionState
    clocks: ClockState
    large_clock_offsets: LargeClockOffsetState
    learning: LearningState
    score: ScoreState

    def update(self, row: Row) -> None:
        if not row.phase.picks_up:
            return
        row.scaled_KM += self.baseline.baseline_KM
        row.ordered = Ordered(row.scaled_KM, whole=row.status.usable_KM is None)
        waited_s = self.baseline.slow_waited_s
        for state in (self.baseline, self.first_mover, self.persistence, self.skew_correction, self.score):
            state.forget()
        self.baseline.slow_waited_s = waited_s
        self.learning.forget("odd_KM")
        self.clocks.forget_rows()
        self.large_clock_offsets.forget_rows()
        row.layout.stages.middles.clear()
