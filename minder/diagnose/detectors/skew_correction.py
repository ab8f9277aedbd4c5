"""A clock that is off, or samples that come first or last: such a machine does what all others do, some seconds before or after them.

Until they stand together again it looks odd, at every checkpoint, stall and flap. One end of its oddness falls together with a common
move and the other does not; a machine that really fails at such a moment is odd from one common move to the next, or stays odd. What
was gathered out of step is forgotten, and who was late once is expected to be late at the next move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import PhaseState
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row


__all__ = ["SkewCorrection", "SkewCorrectionState"]


@dataclass(frozen=True, slots=True)
class SkewCorrectionNumbers:
    """Section [skew_correction] of detector.toml: what each number is stands there."""

    with_s: float
    with_intervals: float
    off_s: float
    off_intervals: float
    odd: float
    late_factor: float
    early: float


_N = numbers("skew_correction", SkewCorrectionNumbers)


@dataclass(slots=True)
class SkewCorrectionState(State):
    odd_from_M: np.ndarray = per("M", np.nan)  # when a machine that is odd turned so
    odd_score_M: np.ndarray = per("M")  # its score before
    late_by_M: np.ndarray = per("M")  # how long after a common move it followed, the last time it did


class SkewCorrection(Stage):
    """Takes from the scores what a clock that is off has added to them."""

    phases: PhaseState
    baseline: BaselineState
    score: ScoreState
    state: SkewCorrectionState

    def update(self, row: Row) -> None:
        if row.calm:
            return
        updated_M = row.status.news_M | row.status.silent_M
        when = (row.time_s, row.status.interval_s, self.config.kept)
        self.score.score_M, row.skewed_M = self.correct(row.strength.total_M, self.score.score_M, updated_M, when)
        if row.skewed_M.any():
            self.baseline.forget_smooth(row.skewed_M, row.layout.staged)

    def correct(
        self, total_M: np.ndarray, score_M: np.ndarray, updated_M: np.ndarray, when: tuple[float, float, float]
    ) -> tuple[np.ndarray, np.ndarray]:
        """(score_M without what its clock has added to it, mask of whose episode that was). total_M: strength in this row; updated_M:
        there is news; when: (time, scrape interval, share kept of what a machine gathered before its peers followed it)."""
        odd_M, from_M = total_M >= _N.odd, self.state.odd_from_M
        known_M = ~np.isnan(from_M)
        ended_M = known_M & ~odd_M & updated_M
        skewed_M = np.zeros(len(total_M), dtype=bool)
        if ended_M.any():
            late_M, early_M = _late_or_early(from_M, self.phases.moving_since_s, when[:2])
            late_M, early_M = ended_M & late_M, ended_M & early_M
            skewed_M = late_M | early_M
            gathered_M = np.maximum(score_M - self.state.odd_score_M, 0.0)
            score_M = score_M - np.where(late_M, 1.0, np.where(early_M, 1.0 - when[2], 0.0)) * gathered_M
            self.state.late_by_M = np.where(late_M, when[0] - self.phases.moving_since_s, self.state.late_by_M)
        began_M = odd_M & ~known_M
        if began_M.any():
            self.state.odd_score_M = np.where(began_M, score_M, self.state.odd_score_M)
        if began_M.any() or ended_M.any():
            self.state.odd_from_M = np.where(began_M, when[0], np.where(ended_M, np.nan, from_M))
        return score_M, skewed_M

    def expected_late_M(self, time_s: float, interval_s: float) -> np.ndarray:
        """Mask: odd since the last common move, and no longer than it was late before."""
        move_s = self.phases.moving_since_s
        with_it_M = np.abs(self.state.odd_from_M - move_s) <= max(_N.with_s, _N.with_intervals * interval_s)
        return np.asarray(with_it_M & (self.state.late_by_M > 0.0) & (time_s - move_s <= _N.late_factor * self.state.late_by_M))


def _late_or_early(from_M: np.ndarray, move_s: float, when: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """(late_M, early_M): odd since the last common move, and then it followed; odd before that move, until the others followed."""
    time_s, interval_s = when
    together_s = max(_N.with_s, _N.with_intervals * interval_s)
    off_s = max(_N.off_s, _N.off_intervals * interval_s)
    since_move_s = time_s - move_s
    lead_M = move_s - from_M
    late_M = (np.abs(lead_M) <= together_s) & (together_s < since_move_s <= off_s)
    early_M = (lead_M > together_s) & (lead_M <= off_s) & (since_move_s <= _N.early * together_s)
    return late_M, early_M
