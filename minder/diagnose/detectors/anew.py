"""Work begins after a rest that was taken for the usual level: what was learned of the rest says nothing of work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from minder.diagnose.detectors.clocks import ClockState
from minder.diagnose.detectors.far_clocks import FarClockState
from minder.diagnose.detectors.forerunner import ForerunnerState
from minder.diagnose.detectors.lasting import LastingState
from minder.diagnose.detectors.learning import LearningState
from minder.diagnose.detectors.out_of_step import OutOfStepState
from minder.diagnose.detectors.peers import Ordered
from minder.diagnose.detectors.reference import ReferenceState
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Anew"]


class Anew(Stage):
    """Forgets what is usual where `row.phase.picks_up`."""

    reference: ReferenceState
    forerunner: ForerunnerState
    lasting: LastingState
    out_of_step: OutOfStepState
    clocks: ClockState
    far_clocks: FarClockState
    learning: LearningState
    score: ScoreState

    def update(self, row: Row) -> None:
        if not row.phase.picks_up:
            return
        row.scaled_KM += self.reference.standing_KM
        row.ordered = Ordered(row.scaled_KM, whole=row.seen.usable_KM is None)
        waited_s = self.reference.slow_waited_s
        for state in (self.reference, self.forerunner, self.lasting, self.out_of_step, self.score):
            state.forget()
        self.reference.slow_waited_s = waited_s
        self.learning.forget("odd_KM")
        self.clocks.forget_rows()
        self.far_clocks.forget_rows()
        row.layout.stages.middles.clear()
