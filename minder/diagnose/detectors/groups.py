"""Several machines at once: what one rack, switch, stage or pair has in common, and no other machine.

Members of a group hide one another where machines are compared one by one: each contests the other's lead, and in a stage that fails
as a whole none differs from its peers. Other ways to see them:

- `CauseGroups`: a cause of slowness (a clock rate that fell, hardware that slows a GPU, congestion or errors that rose, a link's width, a
  host whose processes are kept from the processor, or that is busy since the training is slower) of
  one machine or several, apart from all other machines of the job, whatever their stage, by a gap that no other machine fills. It has a
  memory of its own: what is usual of a cause is learned while the job's level swings, too. Where all others are alike, one machine far
  below them is seen so, too: slow from its first step, it has never been otherwise, and only the comparison with its peers shows it.
- `_waits_M`, `_full_M`: the one machine that waits, for its host and not for the others, while the others are as busy as ever, or wait for
  it and spin; and the few whose memory or disk has run full, or whose memory leaks.
- `_camp_M`: of a job that stands the few whose GPUs rest while all others spin, or spin while all others rest: a stage that has crashed, a
  kernel that hangs. In a stage none differs from its peers, and in a rest of all no deviation counts.
- `_freed_M`, `_differs_M`: of such a job those that let go of their memory first, while all others hold theirs; and the one whose GPUs draw
  another power than all others, which wait.
- `hit_together`: machines that turned odd, or silent, at about the same time and about equally, and far more than any other.

A group is a reason to look, never to evict: a person knows what its machines share. K metrics, M machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.absence import AbsenceNumbers
from minder.diagnose.detectors.baseline import BaselineNumbers, BaselineState
from minder.diagnose.detectors.coupling import CouplingState
from minder.diagnose.detectors.minutes import Minutes
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import Ordered, median_known
from minder.diagnose.detectors.phases import Phases, PhasesNumbers
from minder.diagnose.detectors.presence import PresenceNumbers, PresenceState
from minder.diagnose.detectors.restart_grace import RestartGraceState
from minder.diagnose.detectors.score import ScoreState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import KEPT, LOW, SPINNING, TraitsNumbers, TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Layout, Row

__all__ = ["CauseGroups", "GroupState", "hit_together", "standing_M", "together_s"]


@dataclass(frozen=True, slots=True)
class GroupsNumbers:
    """Section [groups] of detector.toml: what each number is stands there."""

    step_s: float
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
    forget_s: float
    most_s: float
    felt: float
    intervals: float
    above_mean: float
    apart: float
    equal: float
    forgotten_s: float
    part: int
    spins: float
    clear: float
    agrees: float
    most_step_s: float
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
    as_busy: float
    shows: float
    goes_on: float
    waits: float
    waits_z: float
    waits_alone: float
    memory_full: float
    disk_full: float
    filled: float
    hosts: int
    leaked_s: float
    differs: float
    goes_on_differing: float
    draws_less: float
    freed: float
    holds: float


_N = numbers("groups", GroupsNumbers)
_ABSENCE = numbers("absence", AbsenceNumbers)
_BASELINE = numbers("baseline", BaselineNumbers)
_PHASES = numbers("phases", PhasesNumbers)
_PRESENCE = numbers("presence", PresenceNumbers)
_TRAITS = numbers("traits", TraitsNumbers)


_MEMORY = "memory_usage_ratio"
_BUSY = (*SPINNING, "job_busy_ratio")  # the share of the time in which GPUs or processes are busy, also where they wait for each other
_GPU_MEMORY = "gpu_memory_used_ratio"
_POWER = "gpu_power_draw_watts"


@dataclass(slots=True)
class GroupState(State):
    grouped_s_M: np.ndarray = per("M")  # seconds for which the machine has stood apart, alone or with others, in a cause of slowness
    grouped_k_M: np.ndarray = per("M", np.nan)  # by that metric, as an index
    group_waited_s: float = 3.0  # since groups were last asked for; the first row asks
    in_group_M: np.ndarray = per("M")  # 1: what speaks against the machine speaks against others, too
    place_KM: np.ndarray = per("KM", np.nan)  # of causes: how far the machine stands from the middle of all, scaled, smoothed
    usual_KM: np.ndarray = per("KM")  # and how far it usually does
    known_KM: np.ndarray = per("KM")  # seconds of data behind that
    busy_since_M: np.ndarray = per("M", np.nan)  # since when its host has been plainly busier than all others'
    held_M: np.ndarray = per("M", np.nan)  # how full its GPUs' memory was when it last held it as the others do
    freed_since_M: np.ndarray = per("M", np.nan)  # since when it has not, while they do


class CauseGroups(Stage):
    """Machines that stand apart in a cause of slowness, alone or together. It has a memory of its own, which does not wait for calm: in a
    job whose common level swings without end, a clock rate says what it says."""

    presence: PresenceState
    phases: Phases
    baseline: BaselineState
    coupling: CouplingState
    restart_grace: RestartGraceState
    score: ScoreState
    minutes: Minutes
    state: GroupState

    def update(self, row: Row) -> None:
        phase, status, traits = row.phase, row.status, row.traits
        waited_s = self.state.group_waited_s + status.gap_s
        self.state.group_waited_s = 0.0 if waited_s >= _N.step_s else waited_s
        if waited_s < _N.step_s or status.outage or not len(row.raw_KM):  # what lasts for minutes need not be asked for every second
            return
        grouped_s_M, k_M = self.state.grouped_s_M, self.state.grouped_k_M
        apart_M, asked = np.zeros(len(grouped_s_M), dtype=bool), []
        all_causes = np.flatnonzero((traits.causes_K1[:, 0] | traits.hosts_K) & np.isfinite(traits.reach_K1[:, 0]))
        jams_K = traits.congestion_K & ~traits.errs_K
        # after a rest a clock is back with the work, traffic comes later
        rests_K = ((phase.idle or phase.grace) & jams_K) | (phase.idle & ~traits.errs_K & ~traits.hosts_K)
        # what moves in a rest says nothing of work
        moves_K = rests_K & ~jams_K & (np.abs(phase.shift_K) > _N.stays * traits.reach_K1[:, 0])
        causes = all_causes[~moves_K[all_causes]]
        away_CM = self._follow(traits, causes, row.raw_KM[causes], (waited_s, status.interval_s), ~rests_K[causes])
        shows_C = self._shows_C(traits, causes, status.interval_s)
        busy_M, leaks_M = np.zeros_like(apart_M), self.minutes.leaks_M()
        for c in np.argsort(jams_K[causes] + 2 * traits.hosts_K[causes], kind="stable").tolist():
            k = int(causes[c])
            if jams_K[k] and (rests_K[k] or phase.moving or apart_M.any()):
                continue  # nor does congestion, which spreads, too, from who has errors, or is slow, to its neighbours
            asked.append(k)
            if not shows_C[c]:
                continue
            members_M = self._of_cause(row, k, away_CM[c], bool(rests_K[k]))
            if traits.hosts_K[k] and traits.metrics[k] not in KEPT:
                busy_M |= members_M
                members_M = self._slow_M(row, members_M) & ~apart_M.any()
            k_M = np.where(members_M & ~apart_M, float(k), k_M)
            apart_M |= members_M
        for k, members_M in self._of_standing(row, waited_s):
            k_M = np.where(members_M & ~apart_M, float(k), k_M)
            apart_M |= members_M
        grouped_s_M = np.where(leaks_M, np.maximum(grouped_s_M, _N.leaked_s), grouped_s_M)  # it has for minutes
        for k, members_M in self._of_waiting(row, leaks_M):
            k_M = np.where(members_M & ~apart_M, float(k), k_M)
            apart_M |= members_M
        row.apart_M = apart_M
        still_M = (self.state.place_KM - self.state.usual_KM > _N.learned * traits.reach_K1)[traits.hosts_K].any(axis=0)
        since_M = np.where(busy_M & np.isnan(self.state.busy_since_M), row.time_s, self.state.busy_since_M)
        self.state.busy_since_M = np.where(busy_M | still_M, since_M, np.nan)
        if apart_M.any() or grouped_s_M.any():
            asked_M = np.isnan(k_M) | np.isin(k_M, asked) | (phase.steady & ~np.isin(k_M, all_causes))
            kept_s_M = np.where(asked_M, grouped_s_M * np.exp(-waited_s / _N.forget_s), grouped_s_M)
            longer_s_M = np.minimum(grouped_s_M + min(waited_s, _N.most_step_s), _N.most_s)
            self.state.grouped_s_M = np.where(apart_M, longer_s_M, np.where(kept_s_M > _N.forgotten_s, kept_s_M, 0.0))
            self.state.grouped_k_M = np.where(self.state.grouped_s_M > 0.0, k_M, np.nan)

    def follow(self, layout: Layout) -> None:
        if layout.renamed:  # metrics stand under other numbers now
            self.state.forget("grouped_k_M")

    def _of_cause(self, row: Row, k: int, away_M: np.ndarray, rests: bool) -> np.ndarray:
        """Mask (M,): who stands apart in metric k, a cause of slowness. rests: all rest, as far as this metric says."""
        phase, traits, grouped_s_M = row.phase, row.traits, self.state.grouped_s_M
        jams_K = traits.congestion_K & ~traits.errs_K
        costs_M = traits.errs_K[k] & self._congests_M(traits, jams_K)
        when = (float(phase.shift_K[k]), _warmup_s(row.status.interval_s))
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
        members_M = members_M if members_M.any() or rests else self._alone_M(traits, k)
        if traits.falls_K1[k, 0]:  # nor does one that rests on: it has the clock rate of a rest
            members_M &= (self.state.grouped_k_M == k) | ((self.restart_grace.waits_M == 0.0) & (self.restart_grace.rests_on_M == 0.0))
        if traits.errs_K[k] and jams_K.any() and not (phase.steady and phase.effect >= _N.felt):
            # errors that are corrected cost nothing: those that do are sent again, and congest, or slow the training
            members_M &= bool((members_M & (costs_M | (grouped_s_M >= _N.shown_s))).any())
        return members_M

    def _of_standing(self, row: Row, waited_s: float) -> Iterator[tuple[int, np.ndarray]]:
        """(metric, mask (M,)) of who stands apart in what no rest and no return from one explains, while the job is held up."""
        traits, phase, interval_s = row.traits, row.phase, row.status.interval_s
        held_up = phase.stalled or phase.idle or phase.effect >= _N.felt
        k = traits.place.get(_GPU_MEMORY + LOW, traits.place.get(_GPU_MEMORY, -1))
        if k >= 0:
            freed_M = self._freed_M(row, k)
            if freed_M.any() and held_up:
                with np.errstate(invalid="ignore"):
                    yield k, freed_M & ~(self.state.freed_since_M > self.phases.too_late_s(phase, interval_s))
        k = traits.place.get(_POWER, -1)
        if k >= 0:
            self._follow(traits, np.array([k]), row.raw_KM[[k]], (waited_s, interval_s), np.array([not held_up and not phase.grace]))
            if phase.shift_K[k] < -_N.draws_less and not phase.idle:  # what rests differs by when it does
                yield k, self._differs_M(k, interval_s, -float(phase.shift_K[k]))

    def _differs_M(self, k: int, interval_s: float, fall: float) -> np.ndarray:
        """Mask (M,): of a job that stands, the one machine whose GPUs draw more power than usual among all, or less, by many times what any
        other's do: all others wait in the same way, and it does something else, but neither works on nor rests. Where it usually stands
        is taken away, and is not. fall: of the power that all draw."""
        found_M = np.zeros(len(self.state.grouped_s_M), dtype=bool)
        place_M = self.state.place_KM[k]
        place_M = place_M - median_known(place_M)
        moved_M = np.where(self.state.known_KM[k] >= _warmup_s(interval_s), place_M - self.state.usual_KM[k], np.nan)
        moved_M -= median_known(moved_M)  # long steps, sampled, have a mean that is not their median
        nearer_M = np.where(place_M * moved_M > 0.0, np.minimum(np.abs(place_M), np.abs(moved_M)), 0.0)
        if np.count_nonzero(~np.isnan(moved_M)) < _N.fewest:
            return found_M
        first = int(np.argmax(nearer_M))
        times = _N.goes_on_differing if self.state.grouped_s_M[first] > 0.0 else _N.waits_alone
        found_M[first] = nearer_M[first] > max(_N.differs, times * float(np.delete(nearer_M, first).max()))
        found_M[first] &= abs(moved_M[first]) < _N.moved * fall
        return found_M

    def _of_waiting(self, row: Row, leaks_M: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(metric, mask (M,)) of who stands apart by waiting, or by having nothing left, of each metric that is asked in this row."""
        traits, phase = row.traits, row.phase
        for name, most in ((_MEMORY, _N.memory_full), ("disk_usage_ratio", _N.disk_full)):
            if name in traits.place:
                full_M = self._full_M(traits.place[name], most)
                yield traits.place[name], full_M | leaks_M if name == _MEMORY else full_M
        if phase.moving or phase.grace:
            return
        if phase.stalled:
            yield self._camp_M(row)
        if phase.idle:
            return
        for name in () if phase.usually_rests else _BUSY:
            k = traits.place.get(name, -1)
            if k >= 0 and abs(phase.shift_K[k]) <= _N.as_busy:  # all others are as busy as ever
                waits_M = self._waits_M(k)
                if name in SPINNING:
                    waits_M = waits_M if waits_M.any() else self._alone_M(traits, k)
                    waits_M &= self._is_agreed(traits, k, int(np.argmax(waits_M)))
                yield k, waits_M

    def _slow_M(self, row: Row, busy_M: np.ndarray) -> np.ndarray:
        """Mask (M,): of machines whose hosts are busy those since when the training is slower, where no other machine is convicted: a
        busier host is housekeeping else."""
        since_M = self.state.busy_since_M
        found_M = busy_M & ~np.isnan(since_M)
        claimed = ((self.score.score_M >= self.config.patience_s) & ~busy_M).any()
        slowed = not claimed and found_M.any() and self.minutes.slowed_since(row, float(since_M[found_M].min()))
        return np.asarray(found_M & slowed)

    def _freed_M(self, row: Row, k: int) -> np.ndarray:
        """Mask (M,): the first, or the few, whose GPUs have let go of their memory, and rest, while all others hold theirs, as those do
        that wait for a process that has died. Where most do, the job has ended: who takes its memory up late, as in a restart, has freed
        none."""
        used_M, time_s = row.raw_KM[k], row.time_s
        usual = float(np.median(used_M[~np.isnan(used_M)])) if not np.isnan(used_M).all() else 0.0
        with np.errstate(invalid="ignore"):
            freed_M = used_M < _N.freed * np.minimum(self.state.held_M, max(usual, _N.holds))
            freed_M &= (self.state.held_M >= _N.holds) & ~(self.phases.rest_M(row.traits, row.scaled_KM) < _N.spins)
        known = np.count_nonzero(~np.isnan(used_M))
        few = 2 * np.count_nonzero(freed_M) <= known and usual >= _N.holds
        self.state.held_M = np.where(np.isnan(used_M) | (freed_M & few), self.state.held_M, used_M)
        since_M = np.where(
            np.isnan(used_M), self.state.freed_since_M, np.where(freed_M & few, np.fmin(self.state.freed_since_M, time_s), np.nan)
        )
        self.state.freed_since_M = since_M
        if known < _N.fewest or np.isnan(since_M).all():
            return np.zeros_like(freed_M)
        with np.errstate(invalid="ignore"):
            return np.asarray(since_M <= np.nanmin(since_M) + together_s(self.config.together_s, row.status.interval_s))

    def _own_M(self, row: Row) -> tuple[np.ndarray, np.ndarray]:
        """Two (M,): how far what each machine's GPUs compute lies from the usual level of all, scaled; and whether that is known."""
        common_K = self.phases.state.common_K
        computes_K = row.traits.compute_K & ~np.isnan(common_K)
        known_KM = ~np.isnan(row.scaled_KM[computes_K])
        far_M = np.nansum(row.scaled_KM[computes_K] - common_K[computes_K][:, None], axis=0)
        return far_M / np.maximum(known_KM.sum(axis=0), 1), known_KM.any(axis=0)

    def _camp_M(self, row: Row) -> tuple[int, np.ndarray]:
        """(metric, mask (M,)): of a job that stands, or of one of its stages, the few that rest while all others spin, or that spin while
        all others rest. What else their GPUs do must differ to the same side, for a sensor may be broken; who writes for all is none of
        them."""
        traits, scaled_KM = row.traits, row.scaled_KM
        found_M, common_K = np.zeros(scaled_KM.shape[1], dtype=bool), self.phases.state.common_K
        k = next((traits.place[name] for name in SPINNING if name in traits.place and not isnan(common_K[traits.place[name]])), -1)
        own_M, known_M = self._own_M(row)
        if k < 0 or not known_M.any():
            return k, found_M
        fall_M, heard_M = common_K[k] - scaled_KM[k], ~np.isnan(scaled_KM[k]) & known_M & ~row.status.silent_M
        place_M = scaled_KM[k] + self.baseline.baseline_KM[k]
        with np.errstate(invalid="ignore"):
            rests_M, spins_M = heard_M & (fall_M > _PHASES.rest_duty), heard_M & (fall_M < _N.spins * _PHASES.rest_duty)
        # who is given time to come back, once most have, or writes for all
        back_M = (self.restart_grace.rests_on_M > 0.0) & (not row.phase.idle) | ~np.isnan(self.restart_grace.writes_since_M)
        stages = row.layout.stages.members if row.layout.staged else []
        for groups in ([np.arange(len(found_M))], stages):
            for m in groups:
                heard, rest, spin = (int(np.count_nonzero(mask_M[m])) for mask_M in (heard_M, rests_M, spins_M))
                if heard < _N.fewest or rest + spin < _N.clear * heard or not 0 < min(rest, spin) <= _N.share * heard:
                    continue
                few_M, side = (rests_M, -1.0) if rest < spin else (spins_M, 1.0)
                others_m, few_m = m[(heard_M & ~few_M)[m]], m[few_M[m]]
                theirs = float(np.median(own_M[others_m]))
                far_m = side * (place_M[few_m] - np.median(place_M[others_m])) > _PHASES.rest_duty
                camp_m = far_m & (side * (own_M[few_m] - theirs) > _N.agrees) & (own_M[few_m] < _PHASES.stood)  # who evaluates works on
                camp_m &= ~back_M[few_m] if side < 0.0 else True
                if theirs < _ABSENCE.as_ever and camp_m.all():
                    found_M[few_m] = True
            if any(0.5 < float(found_M[m].mean()) < 1.0 for m in row.layout.stages.members):
                found_M[:] = False  # most of a stage: it does what its stage does, and who does not is asked for next
            if found_M.any():
                break
        return k, found_M

    def _follow(
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
        far_CM &= known_s_CM >= _warmup_s(interval_s)
        taught_s_CM = np.where(seen_CM & learns_C[:, None], np.where(far_CM, _N.slowly, 1.0) * waited_s, 0.0)  # hardly what may be a fault
        known_s_CM += taught_s_CM
        share_CM = np.maximum(taught_s_CM / np.maximum(known_s_CM, 1.0), 1.0 - np.exp(-taught_s_CM / _BASELINE.usual_s))
        self.state.known_KM[causes] = known_s_CM
        self.state.usual_KM[causes] = usual_CM + share_CM * np.where(seen_CM, away_CM - usual_CM, 0.0)
        return away_CM

    def _shows_C(self, traits: TraitTable, causes: np.ndarray, interval_s: float) -> np.ndarray:
        """Mask (C,) of the metrics in which some machine stands so far off that it is worth a closer look: most rows have none."""
        place_CM, known_CM = self.state.place_KM[causes], self.state.known_KM[causes] >= _warmup_s(interval_s)
        rises_C1 = traits.rises_K[causes][:, None]
        least_C = np.select([traits.errs_K[causes], traits.falls_K1[causes, 0]], [_N.costs, _N.fine], _N.plain)
        side_C1 = np.where(rises_C1, 1.0, -1.0)
        with np.errstate(invalid="ignore"):
            far_CM = known_CM & (side_C1 * (place_CM - self.state.usual_KM[causes]) > least_C[:, None] * traits.reach_K1[causes])
            apart_CM = place_CM - Ordered(place_CM).median_K()[:, None]
            alone_CM = ~rises_C1 & (apart_CM < -_N.far_below)  # see _alone_M
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

    def _congests_M(self, traits: TraitTable, jams_K: np.ndarray) -> np.ndarray:
        """Mask (M,): whose port has come to more congestion, by what errors cost that are sent again."""
        risen_JM = self.state.place_KM[jams_K] - self.state.usual_KM[jams_K]
        return np.asarray((risen_JM > _N.costs * traits.reach_K1[jams_K]).any(axis=0))

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

    def _waits_M(self, k: int) -> np.ndarray:
        """Mask (M,): the one machine that has fallen by more than `waits`, while no other has moved by a third of it."""
        found_M = np.zeros(len(self.state.grouped_s_M), dtype=bool)
        of_all = self.baseline.all_slow
        known_M = ~np.isnan(of_all.smooth_KM[k])
        if np.count_nonzero(known_M) < _N.fewest or not float(np.fmin.reduce(of_all.smooth_KM[k])) < -_N.waits:
            return found_M
        far_M = np.where(known_M, -of_all.smooth_KM[k], 0.0)
        first = int(np.argmax(far_M))
        far, unit = float(far_M[first]), float(of_all.unit_KM[k, first])
        far_M[first] = 0.0
        shows = -float(self.baseline.all_quick.smooth_KM[k, first]) > _N.shows * far  # else it echoes what has ended
        plain = far > max(_N.waits, _N.waits_z * unit, _N.waits_alone * float(np.abs(far_M).max()))
        found_M[first] = shows and plain and far < _N.goes_on
        return found_M

    def _is_agreed(self, traits: TraitTable, k: int, m: int) -> bool:
        """Whether all that says how busy this machine's GPUs are shows what metric k shows: one reading alone may be broken."""
        below = {}
        for other in [traits.place[name] for name in SPINNING if name in traits.place]:
            apart = float(standing_M(self.state, self.baseline, other)[m])
            if not isnan(apart):
                below[other] = -apart
        return all(share >= _N.shows * below.get(k, 0.0) for share in below.values())

    def _full_M(self, k: int, most: float) -> np.ndarray:
        """Mask (M,): the few machines of which what a host can hold has run full since their usual place was learned."""
        last_M = self.presence.last_KM[k]
        if not (last_M >= most).any():
            return np.zeros(len(last_M), dtype=bool)
        with np.errstate(invalid="ignore"):
            risen_M = self.baseline.all_quick.smooth_KM[k] > np.maximum(_N.filled, self.baseline.all_quick.unit_KM[k])
            full_M = (last_M >= most) & (last_M <= 1.0) & risen_M
        return full_M if np.count_nonzero(full_M) * _N.part <= max(len(full_M), 2 * _N.part) else np.zeros_like(full_M)

    def _alone_M(self, traits: TraitTable, k: int) -> np.ndarray:
        """Mask (M,): the one machine that stands far below all others in this metric, its usual place included, where they are alike.
        Congestion and corrected errors differ between ports from the first step on. A reason to clock lower that has always stood costs
        what its clock shows, or nothing."""
        found_M = np.zeros(len(self.state.grouped_s_M), dtype=bool)
        if traits.rises_K[k]:
            return found_M
        place_M = standing_M(self.state, self.baseline, k)
        worse_M, known_M, far = -place_M, ~np.isnan(place_M), _N.far_below
        if np.count_nonzero(known_M) < _N.fewest:
            return found_M
        if not float(worse_M.max(initial=-np.inf, where=known_M)) > float(worse_M.mean(where=known_M)) + _N.above_mean * far:
            return found_M
        apart_M = worse_M - np.median(worse_M[known_M])
        most = _N.goes_on if traits.activity_K[k] else _TRAITS.unit if traits.falls_K1[k, 0] else np.inf
        worst = int(np.argmax(np.where(known_M, apart_M, -np.inf)))
        known_M[worst] = False
        alike = float(np.abs(apart_M[known_M]).max()) <= _N.alike * apart_M[worst]
        found_M[worst] = alike and far < apart_M[worst] < most
        return found_M


def standing_M(groups: GroupState, baseline: BaselineState, k: int) -> np.ndarray:
    """(M,): how far each machine stands from the middle of all in metric k, scaled: of a cause of slowness by the memory of its own."""
    if not np.isnan(groups.place_KM[k]).all():
        return np.asarray(groups.place_KM[k])
    place_M = baseline.all_quick.smooth_KM[k] + baseline.baseline_KM[k]
    return np.asarray(place_M - median_known(place_M))


def _warmup_s(interval_s: float) -> float:
    """Seconds of data behind what is usual, before it is known."""
    return max(_N.known_s, _N.known_intervals * interval_s)


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
    most = max(quarter, int(_PRESENCE.lost * len(strength_M))) if silent_M.any() else quarter
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
