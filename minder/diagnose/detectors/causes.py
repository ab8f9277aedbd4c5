"""Causes of slowness: a clock rate that fell, hardware that slows a GPU, a link's width, congestion and errors, a host.

They have a memory of their own, which does not wait for calm: in a job whose common level swings without end, a clock rate says what it
says. Asked is which machines stand apart from all others, whatever their stage, by a gap that no other machine fills; and where all others
are alike, which one stands far below them: slow from its first step, it has never been otherwise, and only the comparison with its peers
shows it. C causes, K metrics, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineNumbers, BaselineState
from minder.diagnose.detectors.coupling import CouplingState
from minder.diagnose.detectors.group_state import GroupState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import Ordered, median_known
from minder.diagnose.detectors.restart_grace import RestartGraceState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitsNumbers, TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["CauseState", "Causes", "CausesNumbers", "standing_M", "warmup_s"]


@dataclass(frozen=True, slots=True)
class CausesNumbers:
    """Section [causes] of detector.toml: what each number is stands there."""

    share: float
    gap: float
    plain: float
    fine: float
    fine_z: float
    fine_known_s: float
    many: int
    far_below: float
    alike: float
    fewest: int
    felt: float
    above_mean: float
    smooth_s: float
    smooth_intervals: float
    learned: float
    slowly: float
    known_s: float
    known_intervals: float
    moved: float
    stays: float
    old: float
    costs: float
    shown_s: float
    goes_on: float
    hosts: int


_N = numbers("causes", CausesNumbers)
_BASELINE = numbers("baseline", BaselineNumbers)
_TRAITS = numbers("traits", TraitsNumbers)


@dataclass(slots=True)
class CauseState(State):
    place_KM: np.ndarray = per("KM", np.nan)  # of causes: how far the machine stands from the middle of all, scaled, smoothed
    usual_KM: np.ndarray = per("KM")  # and how far it usually does
    known_KM: np.ndarray = per("KM")  # seconds of data behind that


class Causes(Stage):
    """Who stands apart in a cause of slowness in this row."""

    baseline: BaselineState
    coupling: CouplingState
    restart_grace: RestartGraceState
    groups: GroupState
    state: CauseState

    def of_cause(self, row: Row, k: int, away_M: np.ndarray, rests: bool) -> np.ndarray:
        """Mask (M,): who stands apart in metric k, a cause of slowness. rests: all rest, as far as this metric says."""
        phase, traits, grouped_s_M = row.phase, row.traits, self.groups.grouped_s_M
        jams_K = traits.jams_K
        costs_M = traits.errs_K[k] & self._congests_M(traits)
        when = (float(phase.shift_K[k]), warmup_s(row.status.interval_s))
        share_M = np.where(costs_M, _N.costs, _N.plain)
        if phase.effect >= _N.felt and traits.falls_K1[k, 0]:
            share_M = np.where(self.state.known_KM[k] >= _N.fine_known_s, np.minimum(share_M, self._fine(traits, k)), share_M)
        members_M = self._members_M(traits, k, away_M, when, share_M)
        if traits.hosts_K[k]:
            members_M &= np.count_nonzero(members_M) <= _N.hosts
        if rests:  # who stood apart before goes on to, and no one begins
            members_M &= grouped_s_M > 0.0
        if jams_K[k]:  # ports differ in it by themselves
            members_M &= self.baseline.all_slow.smooth_KM[k] > row.layout.start_z * self.baseline.all_slow.unit_KM[k]
            members_M &= (phase.effect >= _N.felt) & (np.count_nonzero(members_M) > 1)
        if traits.errs_K[k]:  # old errors were corrected, and those that wander by as much are
            members_M &= self.state.place_KM[k] > _N.old * self.state.usual_KM[k]
        members_M = members_M if members_M.any() or rests else self.alone_M(traits, k)
        if traits.falls_K1[k, 0]:  # nor does one that rests on: it has the clock rate of a rest
            members_M &= (self.groups.grouped_k_M == k) | ((self.restart_grace.waits_M == 0.0) & (self.restart_grace.rests_on_M == 0.0))
        if traits.errs_K[k] and jams_K.any() and not (phase.steady and phase.effect >= _N.felt):
            # errors that are corrected cost nothing: those that do are sent again, and congest, or slow the training
            members_M &= bool((members_M & (costs_M | (grouped_s_M >= _N.shown_s))).any())
        return members_M

    def observe(
        self, traits: TraitTable, causes: np.ndarray, raw_CM: np.ndarray, pace: tuple[float, float], learns_C: np.ndarray
    ) -> np.ndarray:
        """(C, M): how far each machine stands from the middle of all in these metrics, scaled; what is usual of it follows. What repeats
        itself is a reading here: a capped clock does. pace: seconds since the last look, and between scrapes."""
        waited_s, interval_s = pace
        away_CM = traits.scale_rows(causes, raw_CM)
        away_CM -= Ordered(away_CM).median_K()[:, None]
        place_CM = self.state.place_KM[causes]
        gain = 1.0 - np.exp(-waited_s / max(_N.smooth_s, _N.smooth_intervals * interval_s))
        seen_CM = ~np.isnan(away_CM)
        place_CM = np.where(seen_CM & ~np.isnan(place_CM), place_CM + gain * (away_CM - place_CM), np.where(seen_CM, away_CM, place_CM))
        self.state.place_KM[causes] = place_CM
        usual_CM, known_s_CM = self.state.usual_KM[causes], self.state.known_KM[causes]
        reach_C1, side_C1 = traits.reach_K1[causes], np.where(traits.rises_K[causes], 1.0, -1.0)[:, None]
        with np.errstate(invalid="ignore"):
            far_CM = np.fmax(side_C1 * away_CM, side_C1 * place_CM) - side_C1 * usual_CM > _N.learned * reach_C1
        far_CM &= known_s_CM >= warmup_s(interval_s)
        taught_s_CM = np.where(seen_CM & learns_C[:, None], np.where(far_CM, _N.slowly, 1.0) * waited_s, 0.0)  # hardly what may be a fault
        known_s_CM += taught_s_CM
        share_CM = np.maximum(taught_s_CM / np.maximum(known_s_CM, 1.0), 1.0 - np.exp(-taught_s_CM / _BASELINE.usual_s))
        self.state.known_KM[causes] = known_s_CM
        self.state.usual_KM[causes] = usual_CM + share_CM * np.where(seen_CM, away_CM - usual_CM, 0.0)
        return away_CM

    def shows_C(self, traits: TraitTable, causes: np.ndarray, interval_s: float) -> np.ndarray:
        """Mask (C,) of the metrics in which some machine stands so far off that it is worth a closer look: most rows have none."""
        place_CM, known_CM = self.state.place_KM[causes], self.state.known_KM[causes] >= warmup_s(interval_s)
        rises_C1 = traits.rises_K[causes][:, None]
        least_C = np.select([traits.errs_K[causes], traits.falls_K1[causes, 0]], [_N.costs, _N.fine], _N.plain)
        side_C1 = np.where(rises_C1, 1.0, -1.0)
        with np.errstate(invalid="ignore"):
            far_CM = known_CM & (side_C1 * (place_CM - self.state.usual_KM[causes]) > least_C[:, None] * traits.reach_K1[causes])
            apart_CM = place_CM - Ordered(place_CM).median_K()[:, None]
            alone_CM = ~rises_C1 & (apart_CM < -_N.far_below)  # see alone_M
        return np.asarray((far_CM | alone_CM).any(axis=1))

    def _fine(self, traits: TraitTable, k: int) -> float:
        """The share of a plain change that is far in the sizes by which many machines differ now, and of the farthest: thousands of clocks
        may hardly differ."""
        moved_M = self.state.place_KM[k] - self.state.usual_KM[k]
        known_M = moved_M[~np.isnan(moved_M) & (self.state.known_KM[k] >= _N.fine_known_s)]
        if len(known_M) < _N.many:
            return _N.plain
        spread = 1.48 * float(np.median(np.abs(known_M - np.median(known_M))))
        return max(_N.fine, max(_N.fine_z * spread, -_N.gap * float(known_M.min())) / float(traits.reach_K1[k, 0]))

    def _congests_M(self, traits: TraitTable) -> np.ndarray:
        """Mask (M,): whose port has come to more congestion, by what errors cost that are sent again."""
        risen_JM = (self.state.place_KM - self.state.usual_KM)[traits.jams_K]
        return np.asarray((risen_JM > _N.costs * traits.reach_K1[traits.jams_K]).any(axis=0))

    def _members_M(self, traits: TraitTable, k: int, away_M: np.ndarray, when: tuple[float, float], least_M: np.ndarray) -> np.ndarray:
        """Mask (M,): one or more that have plainly changed in this metric, to the side that slows a job down, and a gap to all others. Each
        has moved itself, shows it in its newest sample, and does not stand alone: then its clock rate is that of a rest. when: (how far the
        middle of all has moved, scaled, seconds after which a place is known). least_M: shares of a plain change."""
        shift, known_s = when
        side, reach = 1.0 if traits.rises_K[k] else -1.0, float(traits.reach_K1[k, 0])
        usual_M, known_s_M = self.state.usual_KM[k], self.state.known_KM[k]
        worse_M = np.where(known_s_M >= known_s, side * (self.state.place_KM[k] - usual_M), np.nan)
        with np.errstate(invalid="ignore"):
            far_M = worse_M > least_M * reach
            if not far_M.any():
                return far_M
            far_M &= (side * (away_M - usual_M) > _N.gap * worse_M) & (worse_M + side * shift > _N.moved * worse_M)
        far_M &= (worse_M < (_TRAITS.unit if traits.falls_K1[k, 0] else np.inf)) & (self.coupling.down_M == 0.0)
        count, heard_M = int(np.count_nonzero(far_M)), ~np.isnan(worse_M)
        heard = int(np.count_nonzero(heard_M))
        if not count or heard < _N.fewest or count > max(1.0, _N.share * heard):
            return np.zeros(len(far_M), dtype=bool)
        nearest, others_M = float(worse_M[far_M].min()), worse_M[~far_M & heard_M]
        return np.asarray(far_M & (float(others_M.max(initial=0.0)) <= _N.gap * nearest))

    def alone_M(self, traits: TraitTable, k: int) -> np.ndarray:
        """Mask (M,): the one machine that stands far below all others in this metric, its usual place included, where they are alike.
        Congestion and corrected errors differ between ports from the first step on. A reason to clock lower that has always stood costs
        what its clock shows, or nothing."""
        found_M = np.zeros(len(self.groups.grouped_s_M), dtype=bool)
        if traits.rises_K[k]:
            return found_M
        place_M = standing_M(self.state, self.baseline, k)
        worse_M, known_M, far = -place_M, ~np.isnan(place_M), _N.far_below
        worse_N = worse_M[known_M]
        if len(worse_N) < _N.fewest or not float(worse_N.max()) > float(worse_N.mean()) + _N.above_mean * far:
            return found_M
        apart_M = worse_M - np.median(worse_N)
        most = _N.goes_on if traits.activity_K[k] else _TRAITS.unit if traits.falls_K1[k, 0] else np.inf
        worst = int(np.argmax(np.where(known_M, apart_M, -np.inf)))
        known_M[worst] = False
        alike = float(np.abs(apart_M[known_M]).max()) <= _N.alike * apart_M[worst]
        found_M[worst] = alike and far < apart_M[worst] < most
        return found_M


def standing_M(causes: CauseState, baseline: BaselineState, k: int) -> np.ndarray:
    """(M,): how far each machine stands from the middle of all in metric k, scaled: of a cause of slowness by the memory of its own."""
    if not np.isnan(causes.place_KM[k]).all():
        return np.asarray(causes.place_KM[k])
    place_M = baseline.all_quick.smooth_KM[k] + baseline.baseline_KM[k]
    return np.asarray(place_M - median_known(place_M))


def warmup_s(interval_s: float) -> float:
    """Seconds of data behind what is usual, before it is known."""
    return max(_N.known_s, _N.known_intervals * interval_s)
