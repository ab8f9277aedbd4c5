"""Absence as evidence: a machine that fell silent as the training came to stand.

Silence speaks only with a second witness, the peers: they stall when a machine is lost, or within a step or two. A silent exporter alone
says nothing, and where many are silent it is the monitoring that is out. On some sites GPUs that wait for a lost machine look like GPUs
that rest: a rest counts as a stall once it has lasted, and `verdicts.telemetry` evicts no machine while it may be an evaluation. Where no
other machine is odd in a stall that has lasted, silence that began minutes before it is worth a page (`at_once_s`). Where as many machines
are heard for the first time as fall silent, within minutes, the job was started again without these: they were exchanged. Nor does silence
speak while the peers compute, as in an evaluation, or stand for no longer than they have again and again. M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phase, PhasesNumbers, PhaseState
from minder.diagnose.detectors.presence import PresenceNumbers, PresenceState, RowStatus
from minder.diagnose.detectors.score import ScoreNumbers, ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.traits import SPINNING, TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Absence", "at_once_s"]

_NOT_SPINNING = ("gpu_tensor_activity_ratio", "gpu_fp_activity_ratio", "gpu_memory_bandwidth_ratio")


@dataclass(frozen=True, slots=True)
class AbsenceNumbers:
    """Section [absence] of detector.toml: what each number is stands there."""

    says: float
    earlier_intervals: float
    earlier_s: float
    later_s: float
    says_late: float
    early_s: float
    stands_s: float
    exchange_s: float
    rests_s: float
    works_on: float
    computing: int
    as_ever: float
    few_at_work: float
    beside: float
    felt: float
    still_computes: float


_N = numbers("absence", AbsenceNumbers)
_PHASES = numbers("phases", PhasesNumbers)
_PRESENCE = numbers("presence", PresenceNumbers)
_SCORE = numbers("score", ScoreNumbers)


class Absence(Stage):
    """Silence that began as the training came to stand."""

    presence: PresenceState
    phases: PhaseState
    baseline: BaselineState
    score: ScoreState

    def update(self, row: Row) -> None:
        if not row.status.silent_M.any():
            return
        found, phase, status = row.strength, row.phase, row.status
        if phase.stalled and phase.sustained >= _N.felt and np.count_nonzero(status.silent_M) <= _PRESENCE.lost * len(status.silent_M):
            status.outage = False  # those that are heard stand: where only the monitoring is out the training goes on
        silence_M = self.absence_M(row.traits, status, phase, row.time_s, others_odd=bool((found.total_M >= _SCORE.calm).any()))
        sure_M = (silence_M > 0.0) & self._at_once_M(phase, status, row.time_s)
        if sure_M.any():  # beside it a standstill says little of those that are heard, unless they were odd before
            before_M = self.score.since_M < float((row.time_s - status.silence_M[sure_M]).min()) - _together_s(status)
            most_M = np.where((before_M & ~status.silent_M) | sure_M, np.inf, _N.beside * _N.says)
            found.total_M, silence_M = np.minimum(found.total_M, most_M), np.minimum(silence_M, most_M)
        found.total_M += silence_M
        found.lone_M[silence_M > 0.0] = 0.0  # it speaks for itself: what is smoothed of the machine only echoes
        found.support_M[silence_M > 0.0] = 1.0

    def absence_M(self, traits: TraitTable, status: RowStatus, phase: Phase, time_s: float, others_odd: bool = False) -> np.ndarray:
        """(M,): how strongly each machine's silence accuses it in this row; 0 for those heard. others_odd: one that is heard is odd."""
        none_M = np.zeros(len(status.silent_M))
        # processes that are ended one by one, minutes after the training came to stand, leave GPUs at rest, too
        rests = phase.idle and phase.idle_s <= _N.rests_s and not time_s - phase.idle_s - phase.stopped_s >= _N.stands_s
        if status.outage or phase.usual_stand or phase.effect < _N.felt or not phase.stalled or rests:
            return none_M
        fell_silent_M = time_s - status.silence_M
        together_M = np.zeros(len(fell_silent_M), dtype=bool)
        rests_since_s = time_s - phase.idle_s if phase.idle else np.nan
        # a job may have been slow, as in a congestion, before it stood, and one that rests at once never seemed to be slowed
        for began_s in (phase.effect_since_s, phase.stands_since_s, phase.stopped_s, rests_since_s):
            later_M = began_s - fell_silent_M
            together_M |= (later_M > -_together_s(status)) & (later_M < _N.later_s + status.interval_s)
        # agents do not die within seconds of each other by chance: where several machines do, the rest may come to stand minutes later
        several_M = status.silent_M & _several_M(fell_silent_M, status)
        together_M |= several_M & (phase.stopped_s - fell_silent_M > 0.0) & (phase.stopped_s - fell_silent_M < _N.early_s)
        together_M &= status.silent_M
        says = _N.says if together_M.any() else _N.says_late
        if not together_M.any() and not others_odd and not phase.idle and time_s - phase.stopped_s >= _N.stands_s:
            later_M = phase.stopped_s - fell_silent_M
            together_M = status.silent_M & (later_M > -_PHASES.after_s) & (later_M < _N.early_s)
        left_M = together_M & ~status.frozen_M & ~status.gone_M  # who is heard has not been exchanged
        if left_M.any() and self._exchanged(fell_silent_M[left_M]):
            return none_M
        if together_M.any() and (self._computes_on(traits, phase) or self._some_work_on(traits, status, phase)):
            return none_M
        if not phase.idle and not self._tells_rest(traits):
            says *= phase.sustained / phase.effect  # it may be a checkpoint, until it has lasted
        return np.where(together_M, says, 0.0)

    def _at_once_M(self, phase: Phase, status: RowStatus, time_s: float) -> np.ndarray:
        """Mask (M,): fell silent right as the training came to stand, or with others: no exporter does by chance."""
        fell_silent_M = time_s - status.silence_M
        began_s = (phase.effect_since_s, phase.stopped_s, time_s - phase.idle_s if phase.idle else np.nan)
        near_M = np.any([np.abs(since_s - fell_silent_M) < _together_s(status) for since_s in began_s], axis=0)
        return np.asarray(status.silent_M & (near_M | _several_M(fell_silent_M, status)))

    def _exchanged(self, fell_silent_X: np.ndarray) -> bool:
        """As many machines joined within minutes of the time at which these fell silent."""
        joined_s = self.presence.joined_M
        near_M = (joined_s >= fell_silent_X.min() - _N.exchange_s) & (joined_s <= fell_silent_X.max() + _N.exchange_s)
        return bool(np.count_nonzero(near_M) >= len(fell_silent_X))

    def _tells_rest(self, traits: TraitTable) -> bool:
        """The site exports what is high in a stalled collective and low at rest; power and activity fall in both."""
        known = {name for name, k in traits.place.items() if not isnan(self.phases.common_K[k])}
        return not known.isdisjoint(SPINNING)

    def _computes_on(self, traits: TraitTable, phase: Phase) -> bool:
        """What the GPUs compute has not fallen: only what they send has ended, as in an evaluation, and nothing waits."""
        known_K = traits.compute_K & ~np.isnan(self.phases.common_K)
        if np.count_nonzero(known_K) >= _N.computing and phase.shift_K[known_K].mean() > _N.as_ever:
            return True
        # an evaluation may compute half as much, and who spins reads and multiplies next to nothing
        shows = [k for name in _NOT_SPINNING if (k := traits.place.get(name)) is not None and known_K[k]]
        left = [traits.unscale(k, self.phases.center_K[k]) / max(traits.unscale(k, self.phases.common_K[k]), 1e-9) for k in shows]
        return len(left) >= _N.computing and min(left) > _N.still_computes

    def _some_work_on(self, traits: TraitTable, status: RowStatus, phase: Phase) -> bool:
        """Several machines are heard that hardly followed what fell for the others: none waits for the silent one, as in an
        evaluation, which leaves one stage at work."""
        fallen_K = traits.activity_K & (phase.shift_K < _PHASES.stood)
        apart_KM = self.baseline.all_quick.smooth_KM[fallen_K]
        reported_KM = ~np.isnan(apart_KM)
        kept_KM = np.nan_to_num(apart_KM) > -_N.works_on * phase.shift_K[fallen_K][:, None]
        heard_M = ~status.silent_M & reported_KM.any(axis=0)
        at_work = np.count_nonzero(heard_M & (kept_KM | ~reported_KM).all(axis=0))
        return bool(at_work > max(1.0, _N.few_at_work * np.count_nonzero(heard_M)))


def _several_M(fell_silent_M: np.ndarray, status: RowStatus) -> np.ndarray:
    """Mask (M,): fell silent within seconds of another machine that has."""
    x = np.flatnonzero(status.silent_M)
    found_M = np.zeros(len(fell_silent_M), dtype=bool)
    x = x[np.argsort(fell_silent_M[x])]
    near_X = np.diff(fell_silent_M[x]) <= _N.earlier_intervals * status.interval_s
    found_M[x[:-1][near_X]] = found_M[x[1:][near_X]] = True
    return found_M


def _together_s(status: RowStatus) -> float:
    return _N.earlier_intervals * status.interval_s + _N.earlier_s


def at_once_s(phase: Phase, status: RowStatus) -> float:
    """Silence that began before this did not stop the training at once: a reason to page, not to evict. inf while it does not stand:
    training that goes on without a silent machine never needed its exporter."""
    began_s = [since_s for since_s in (phase.effect_since_s, phase.stopped_s) if not isnan(since_s)]
    if not phase.stalled or not began_s:
        return inf
    late_s = _N.later_s + status.interval_s
    # where it was slow for long before it stood, what made it slow is not what made it stand
    slow_first = phase.stopped_s - phase.effect_since_s > late_s
    return (phase.stopped_s if slow_first else min(began_s)) - late_s
