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

from minder.diagnose.detectors.deviants import Deviants
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.reference import ReferenceState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Forerunner", "ForerunnerState"]


@dataclass(frozen=True, slots=True)
class ForerunnerNumbers:
    """Section [forerunner] of detector.toml: what each number is stands there."""

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
    most_led_s: float
    felt: float
    plain: float
    faded: float


_N = numbers("forerunner", ForerunnerNumbers)


@dataclass(slots=True)
class ForerunnerState(State):
    fore_M: np.ndarray = per("M")  # how strongly the machine deviated while the training still ran
    fore_since_M: np.ndarray = per("M", -np.inf)  # when it began to
    fore_s_M: np.ndarray = per("M", -np.inf)  # when it was last seen to
    fore_KM: np.ndarray = per("KM")  # how far its metrics had moved then, scaled
    led_s_M: np.ndarray = per("M")  # for so long it has been a forerunner in case the training stops
    led_of_s: float = 0.0  # of so many seconds in which the training ran as usual


class Forerunner(Stage):
    """The first mover stays the witness while the training stands."""

    reference: ReferenceState
    state: ForerunnerState

    def update(self, row: Row) -> None:
        """Where no other machine is a witness."""
        found, phase, seen = row.strength, row.phase, row.seen
        if phase.idle or phase.grace or phase.moving:
            return
        if phase.effect < _N.felt:
            when = (row.time_s, seen.gap_s, seen.interval_s)
            self.note_forerunners(row.traits, row.deviants, found.total_M[row.deviants.machines_X], when)
        elif phase.stalled and phase.lasting > 0.0:
            first = self.recall_forerunner(phase, seen.interval_s)
            if first is not None and not seen.silent_M[first[0]]:
                m, strength = first
                found.total_M[m] = max(found.total_M[m], min(self.config.effect_boost * strength * phase.lasting, self.config.most_alone))
                found.shown_M[m] = 1.0

    def note_forerunners(self, traits: TraitTable, deviants: Deviants, total_X: np.ndarray, when: tuple[float, float, float]) -> None:
        """A row in which the training ran as usual. when: (time of the row, seconds since the last one, usual scrape interval)."""
        time_s, gap_s, interval_s = when
        self.state.led_of_s = self.state.led_of_s + gap_s
        fore_M = self.state.fore_M
        if fore_M.any():
            fore_M = fore_M * np.exp(-gap_s / _N.forget_s)
        strong_X = deviants.reached_X & (total_X >= _N.least)
        if strong_X.any():
            x = deviants.machines_X[strong_X]
            seen_s_M, since_M = self.state.fore_s_M.copy(), self.state.fore_since_M.copy()
            since_M[x] = np.where(time_s - seen_s_M[x] > _N.forget_s, time_s, since_M[x])
            seen_s_M[x] = time_s
            self.state.fore_s_M, self.state.fore_since_M = seen_s_M, since_M
            strong_X &= total_X >= fore_M[deviants.machines_X]
            x = deviants.machines_X[strong_X]
            told_KX = (deviants.counted_KX[:, strong_X] > _N.plain) & (traits.reaches_K1 | traits.halts_K1)
            fore_M, fore_KM = fore_M.copy(), self.state.fore_KM.copy()
            fore_M[x] = total_X[strong_X]
            fore_KM[:, x] = np.where(told_KX, deviants.moved_KX[:, strong_X], 0.0)
            self.state.fore_KM = fore_KM
        self.state.fore_M = fore_M
        leader = self._leader(time_s, interval_s) if strong_X.any() else None
        if leader is not None:
            led_s_M = self.state.led_s_M.copy()
            led_s_M[leader] = min(led_s_M[leader] + gap_s, _N.most_led_s)
            self.state.led_s_M = led_s_M

    def recall_forerunner(self, phase: Phase, interval_s: float) -> tuple[int, float] | None:
        """In a row in which the training stands: (who went first, how strongly), if one went alone and still stands where it fell to."""
        first = self._leader(phase.effect_since_s, interval_s)
        if first is None:
            return None
        others_s = np.delete(self.state.led_s_M, first)
        if np.count_nonzero(others_s) >= _N.several and others_s.sum() > _N.usual * self.state.led_of_s:
            return None
        then_K = self.state.fore_KM[:, first]
        told_K = then_K != 0.0
        now_K = np.nan_to_num(self.reference.all_quick.smooth_KM[:, first]) + phase.shift_K
        if not told_K.any() or (now_K[told_K] * np.sign(then_K[told_K]) < _N.still * np.abs(then_K[told_K])).any():
            forgotten_M = self.state.fore_M.copy()
            forgotten_M[first] = 0.0
            self.state.fore_M = forgotten_M
            return None
        return first, float(self.state.fore_M[first])

    def _leader(self, time_s: float, interval_s: float) -> int | None:
        """Who went first, if the training stops at this time: one that went alone, long enough before, and was seen apart until then."""
        led_M = time_s - self.state.fore_since_M >= max(_N.lead_s, _N.lead_intervals * interval_s)
        fresh_M = time_s - self.state.fore_s_M <= _N.until_s + _N.until_intervals * interval_s
        fore_M = np.where(led_M & fresh_M, self.state.fore_M, 0.0)
        first = int(np.argmax(fore_M)) if len(fore_M) else 0
        if not len(fore_M) or fore_M[first] < _N.faded * _N.least or (np.delete(fore_M, first) * _N.alone > fore_M[first]).any():
            return None
        return first
