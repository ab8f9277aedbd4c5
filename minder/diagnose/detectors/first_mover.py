"""The earliest deviator is the culprit: a machine that fell, and that the others joined when the job came to a stop, no longer differs
from anybody, but it went first.

While the training runs as usual, the machine that plainly changes is remembered, with how far each of its metrics moved. If the
training stops while it is still there, it goes on testifying as long as it stands where it fell to. A jitter that had passed does not.
Among many machines one or the other jitters at any time; where that is usual in this job, having gone first says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.outliers import Outliers
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["FirstMover", "FirstMoverState"]


@dataclass(frozen=True, slots=True)
class FirstMoverNumbers:
    """Section [first_mover] of detector.toml: what each number is stands there."""

    forget_s: float
    until_s: float
    until_intervals: float
    lead_s: float
    lead_intervals: float
    least: float
    still: float
    alone: float
    usual: float
    several: int
    most_lead_time_s: float
    felt: float
    plain: float
    faded: float


_N = numbers("first_mover", FirstMoverNumbers)


@dataclass(slots=True)
class FirstMoverState(State):
    strength_M: np.ndarray = per("M")  # how strongly the machine deviated while the training still ran
    began_M: np.ndarray = per("M", -np.inf)  # when it began to
    last_s_M: np.ndarray = per("M", -np.inf)  # when it was last seen to
    moved_KM: np.ndarray = per("KM")  # how far its metrics had moved then, scaled
    lead_time_s_M: np.ndarray = per("M")  # for so long it has been a first mover in case the training stops
    ran_s: float = 0.0  # of so many seconds in which the training ran as usual


class FirstMover(Stage):
    """The first mover stays the witness while the training stands."""

    baseline: BaselineState
    state: FirstMoverState

    def update(self, row: Row) -> None:
        """Where no other machine is a witness."""
        found, phase, status = row.strength, row.phase, row.status
        if not phase.steady:
            return
        if phase.effect < _N.felt:
            when = (row.time_s, status.gap_s, status.interval_s)
            self.note_candidates(row.traits, row.outliers, found.total_M[row.outliers.machines_X], when)
        elif phase.stalled and phase.sustained > 0.0:
            first = self.recall_first_mover(phase, status.interval_s)
            if first is not None and not status.silent_M[first[0]]:
                m, strength = first
                found.total_M[m] = max(found.total_M[m], min(self.config.effect_boost * strength * phase.sustained, self.config.most_alone))
                found.support_M[m] = 1.0

    def note_candidates(self, traits: TraitTable, outliers: Outliers, total_X: np.ndarray, when: tuple[float, float, float]) -> None:
        """A row in which the training ran as usual. when: (time of the row, seconds since the last one, usual scrape interval)."""
        time_s, gap_s, interval_s = when
        self.state.ran_s = self.state.ran_s + gap_s
        strength_M = self.state.strength_M
        if strength_M.any():
            strength_M = strength_M * np.exp(-gap_s / _N.forget_s)
        strong_X = outliers.reached_X & (total_X >= _N.least)
        if strong_X.any():
            x = outliers.machines_X[strong_X]
            seen_s_M, since_M = self.state.last_s_M.copy(), self.state.began_M.copy()
            since_M[x] = np.where(time_s - seen_s_M[x] > _N.forget_s, time_s, since_M[x])
            seen_s_M[x] = time_s
            self.state.last_s_M, self.state.began_M = seen_s_M, since_M
            strong_X &= total_X >= strength_M[outliers.machines_X]
            x = outliers.machines_X[strong_X]
            reported_KX = (outliers.counted_KX[:, strong_X] > _N.plain) & (traits.reaches_K1 | traits.halts_K1)
            strength_M, moved_KM = strength_M.copy(), self.state.moved_KM.copy()
            strength_M[x] = total_X[strong_X]
            moved_KM[:, x] = np.where(reported_KX, outliers.moved_KX[:, strong_X], 0.0)
            self.state.moved_KM = moved_KM
        self.state.strength_M = strength_M
        leader = self._leader(time_s, interval_s) if strong_X.any() else None
        if leader is not None:
            lead_time_s_M = self.state.lead_time_s_M.copy()
            lead_time_s_M[leader] = min(lead_time_s_M[leader] + gap_s, _N.most_lead_time_s)
            self.state.lead_time_s_M = lead_time_s_M

    def recall_first_mover(self, phase: Phase, interval_s: float) -> tuple[int, float] | None:
        """In a row in which the training stands: (who went first, how strongly), if one went alone and still stands where it fell to."""
        first = self._leader(phase.effect_since_s, interval_s)
        if first is None:
            return None
        others_s = np.delete(self.state.lead_time_s_M, first)
        if np.count_nonzero(others_s) >= _N.several and others_s.sum() > _N.usual * self.state.ran_s:
            return None
        then_K = self.state.moved_KM[:, first]
        reported_K = then_K != 0.0
        now_K = np.nan_to_num(self.baseline.all_quick.smooth_KM[:, first]) + phase.shift_K
        if not reported_K.any() or (now_K[reported_K] * np.sign(then_K[reported_K]) < _N.still * np.abs(then_K[reported_K])).any():
            forgotten_M = self.state.strength_M.copy()
            forgotten_M[first] = 0.0
            self.state.strength_M = forgotten_M
            return None
        return first, float(self.state.strength_M[first])

    def _leader(self, time_s: float, interval_s: float) -> int | None:
        """Who went first, if the training stops at this time: one that went alone, long enough before, and was seen apart until then."""
        led_M = time_s - self.state.began_M >= max(_N.lead_s, _N.lead_intervals * interval_s)
        fresh_M = time_s - self.state.last_s_M <= _N.until_s + _N.until_intervals * interval_s
        strength_M = np.where(led_M & fresh_M, self.state.strength_M, 0.0)
        first = int(np.argmax(strength_M)) if len(strength_M) else 0
        if (
            not len(strength_M)
            or strength_M[first] < _N.faded * _N.least
            or (np.delete(strength_M, first) * _N.alone > strength_M[first]).any()
        ):
            return None
        return first
