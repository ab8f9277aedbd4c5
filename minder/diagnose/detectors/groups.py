"""Several machines at once: what one rack, switch, stage or pair has in common, and no other machine.

Members of a group hide one another where machines are compared one by one: each contests the other's lead, and in a stage that fails
as a whole none differs from its peers. Two ways to see them:

- `cause_group`: a cause of slowness (a clock rate that fell, hardware that slows a GPU, congestion or errors that rose, a link's width) of
  several machines, apart from all other machines of the job, whatever their stage, by a gap that no other machine fills. Where all others
  are alike, one machine far below them, or with errors on its links, is seen so, too: slow from its first step, it has never been
  otherwise, and only the comparison with its peers shows it.
- `hit_together`: machines that turned odd, or silent, at about the same time and about equally, and far more than any other.

A group is a reason to look, never to evict: a person knows what its machines share. K metrics, M machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.presence import PresenceNumbers, RowStatus
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitsNumbers, TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Layout, Row

__all__ = ["CauseGroups", "GroupState", "hit_together", "together_s"]


@dataclass(frozen=True, slots=True)
class GroupsNumbers:
    """Section [groups] of detector.toml: what each number is stands there."""

    step_s: float
    share: float
    gap: float
    plain: float
    far_below: float
    alike: float
    errs: float
    fewest: int
    forget_s: float
    most_s: float
    felt: float
    intervals: float
    above_mean: float
    apart: float
    equal: float
    forgotten_s: float
    part: int
    moved: float


_N = numbers("groups", GroupsNumbers)
_PRESENCE = numbers("presence", PresenceNumbers)
_TRAITS = numbers("traits", TraitsNumbers)


@dataclass(slots=True)
class GroupState(State):
    grouped_s_M: np.ndarray = per("M")  # seconds for which the machine has stood apart with others, in a cause of slowness
    grouped_k_M: np.ndarray = per("M", np.nan)  # by that metric, as an index
    group_waited_s: float = 3.0  # since groups were last asked for; the first row asks
    in_group_M: np.ndarray = per("M")  # 1: what speaks against the machine speaks against others, too


class CauseGroups(Stage):
    """Machines that stand apart in a cause of slowness."""

    baseline: BaselineState
    state: GroupState

    def update(self, row: Row) -> None:
        self.cause_group(row.traits, row.phase, row.status, row.layout.start_z)

    def follow(self, layout: Layout) -> None:
        if layout.renamed:  # metrics stand under other numbers now
            self.state.forget("grouped_k_M")

    def cause_group(self, traits: TraitTable, phase: Phase, status: RowStatus, least_z: float) -> None:
        """Follows `grouped_s_M` by one row. least_z: deviation that counts, in usual sizes."""
        if phase.moving or phase.idle or phase.grace or status.outage:
            return  # such rows say nothing: they neither add nor interrupt
        waited_s = self.state.group_waited_s + status.gap_s
        self.state.group_waited_s = 0.0 if waited_s >= _N.step_s else waited_s
        if waited_s < _N.step_s:  # what lasts for minutes need not be asked for every second
            return
        grouped_s_M, k_M = self.state.grouped_s_M, self.state.grouped_k_M
        apart_M = np.zeros(len(grouped_s_M), dtype=bool)
        for k in np.flatnonzero(traits.causes_K1[:, 0] & np.isfinite(traits.reach_K1[:, 0])).tolist():
            counts = not traits.congestion_K[k] or phase.effect >= _N.felt
            members_M = self._members_M(traits, k, least_z, phase) if counts else np.zeros(len(apart_M), dtype=bool)
            members_M = members_M if members_M.any() else self._alone_M(traits, k)
            if members_M.any():
                k_M = np.where(members_M & ~apart_M, float(k), k_M)
                apart_M |= members_M
        if apart_M.any() or grouped_s_M.any():
            kept_s_M = grouped_s_M * np.exp(-waited_s / _N.forget_s)
            longer_s_M = np.minimum(grouped_s_M + waited_s, _N.most_s)
            self.state.grouped_s_M = np.where(apart_M, longer_s_M, np.where(kept_s_M > _N.forgotten_s, kept_s_M, 0.0))
            self.state.grouped_k_M = np.where(self.state.grouped_s_M > 0.0, k_M, np.nan)

    def _members_M(self, traits: TraitTable, k: int, least_z: float, phase: Phase) -> np.ndarray:
        """Mask (M,): two or more that have plainly changed in this metric, to the side that slows a job down, and a gap to all others."""
        side = 1.0 if traits.rises_K[k] else -1.0
        unit_M, reach = self.baseline.all_slow.unit_KM[k], float(traits.reach_K1[k, 0])
        with np.errstate(invalid="ignore"):
            slow_M = side * self.baseline.all_slow.smooth_KM[k]
            if not (slow_M > _N.plain * reach).any():
                return np.zeros(len(slow_M), dtype=bool)
            quick_M, most = side * self.baseline.all_quick.smooth_KM[k], _TRAITS.unit if traits.falls_K1[k, 0] else np.inf
            far_M = (slow_M > least_z * unit_M) & (slow_M > _N.plain * reach) & (quick_M > _N.gap * slow_M) & (slow_M < most)
            far_M &= quick_M + side * float(phase.shift_K[k]) > _N.moved * quick_M  # the others may have moved, and not these
        count, heard_M = int(np.count_nonzero(far_M)), ~np.isnan(slow_M)
        if count < 2 or count > _N.share * np.count_nonzero(heard_M):
            return np.zeros(len(far_M), dtype=bool)
        nearest, others_M = float(slow_M[far_M].min()), slow_M[~far_M & heard_M]
        return np.asarray(far_M & (float(others_M.max(initial=0.0)) <= _N.gap * nearest))

    def _alone_M(self, traits: TraitTable, k: int) -> np.ndarray:
        """Mask (M,): the one machine that stands far from all others in this metric, to the side that slows a job down, its usual place
        included, where they are alike. Congestion differs between ports from the first step on: of it only errors tell. A reason to clock
        lower that has always stood costs what its clock shows, or nothing."""
        found_M = np.zeros(len(self.state.grouped_s_M), dtype=bool)
        if traits.rises_K[k] and not traits.errs_K[k]:
            return found_M
        place_M = self.baseline.all_quick.smooth_KM[k] + self.baseline.baseline_KM[k]
        worse_M = place_M if traits.errs_K[k] else -place_M
        known_M, far = ~np.isnan(place_M), _N.errs if traits.errs_K[k] else _N.far_below
        if np.count_nonzero(known_M) < _N.fewest:
            return found_M
        if not float(worse_M.max(initial=-np.inf, where=known_M)) > float(worse_M.mean(where=known_M)) + _N.above_mean * far:
            return found_M
        apart_M = worse_M - np.median(worse_M[known_M])
        most = _TRAITS.unit if traits.falls_K1[k, 0] else np.inf
        worst = int(np.argmax(np.where(known_M, apart_M, -np.inf)))
        known_M[worst] = False
        alike = float(np.abs(apart_M[known_M]).max()) <= _N.alike * apart_M[worst]
        found_M[worst] = alike and far < apart_M[worst] < most
        return found_M


def together_s(least_s: float, interval_s: float) -> float:
    """Machines that turn odd within so many seconds of each other were hit together: two scrapes may lie between their samples.

    >>> together_s(10.0, 2.0), together_s(10.0, 15.0)
    (10.0, 30.0)
    """
    return max(least_s, _N.intervals * interval_s)


def hit_together(strength_M: np.ndarray, since_M: np.ndarray, within_s: float, silent_M: np.ndarray) -> np.ndarray:
    """Mask of two or more machines that turned odd within seconds of each other, about equally, and far more than any other;
    all False if there is no such group, or if it is more than a quarter of the job: of silent ones, so many that it is the monitoring."""
    found_M = np.zeros(len(strength_M), dtype=bool)
    quarter = len(strength_M) // _N.part
    most = max(quarter, int(_PRESENCE.outage * len(strength_M))) if silent_M.any() else quarter
    if most < 2:
        return found_M
    order = np.argsort(-strength_M, kind="stable")[: most + 1]
    strength, since = strength_M[order], since_M[order]
    for size in range(2, most + 1):
        apart = strength[size] <= _N.apart * strength[size - 1]
        few = size <= quarter or bool(silent_M[order[:size]].all())
        if few and apart and strength[size - 1] >= _N.equal * strength[0] and float(np.ptp(since[:size])) <= within_s:
            found_M[order[:size]] = True
            break
    return found_M
