"""Who stopped a job that stands or is held up, where no machine differs from the peers of its stage, or a rest hides all deviations.

- `_camp_M`: the few whose GPUs rest while all others spin, or spin while all others rest: a stage that has crashed, a kernel that hangs.
- `_freed_M`: those that let go of their GPUs' memory first, while all others hold theirs.
- `_differs_M`: the one whose GPUs draw another power than all others, which wait.

K metrics, M machines; m members of a stage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.absence import AbsenceNumbers
from minder.diagnose.detectors.baseline import BaselineState
from minder.diagnose.detectors.causes import Causes, CausesNumbers, warmup_s
from minder.diagnose.detectors.group_state import GroupState
from minder.diagnose.detectors.hosts import HostsNumbers
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import median_known
from minder.diagnose.detectors.phases import Phases, PhasesNumbers
from minder.diagnose.detectors.restart_grace import RestartGraceState
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.together import together_s
from minder.diagnose.detectors.traits import LOW, SPINNING

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Standing", "StandingState"]


@dataclass(frozen=True, slots=True)
class StandingNumbers:
    """Section [standing] of detector.toml: what each number is stands there."""

    spins: float
    clear: float
    agrees: float
    differs: float
    goes_on_differing: float
    draws_less: float
    freed: float
    holds: float


_N = numbers("standing", StandingNumbers)
_ABSENCE = numbers("absence", AbsenceNumbers)
_CAUSES = numbers("causes", CausesNumbers)
_HOSTS = numbers("hosts", HostsNumbers)
_PHASES = numbers("phases", PhasesNumbers)
_GPU_MEMORY = "gpu_memory_used_ratio"
_POWER = "gpu_power_draw_watts"


@dataclass(slots=True)
class StandingState(State):
    held_M: np.ndarray = per("M", np.nan)  # how full its GPUs' memory was when it last held it as the others do
    freed_since_M: np.ndarray = per("M", np.nan)  # since when it has not, while they do


class Standing(Stage):
    """Who stands apart while the job is held up."""

    phases: Phases
    baseline: BaselineState
    restart_grace: RestartGraceState
    causes: Causes
    groups: GroupState
    state: StandingState

    def of_power(self, row: Row) -> tuple[np.ndarray, bool]:
        """(the metric of the GPUs' power, none where there is none; whether what is usual of it may be learned): it is followed as causes
        are."""
        k = row.traits.place.get(_POWER, -1)
        return np.array([k] if k >= 0 else [], dtype=int), not _is_held_up(row) and not row.phase.grace

    def of_standing(self, row: Row) -> Iterator[tuple[int, np.ndarray]]:
        """(metric, mask (M,)) of who stands apart in what no rest and no return from one explains, while the job is held up."""
        traits, phase, interval_s = row.traits, row.phase, row.status.interval_s
        held_up = _is_held_up(row)
        k = traits.place.get(_GPU_MEMORY + LOW, traits.place.get(_GPU_MEMORY, -1))
        if k >= 0:
            freed_M = self._freed_M(row, k)
            if freed_M.any() and held_up:
                with np.errstate(invalid="ignore"):
                    yield k, freed_M & ~(self.state.freed_since_M > self.phases.too_late_s(phase, interval_s))
        k = traits.place.get(_POWER, -1)
        if k >= 0 and phase.shift_K[k] < -_N.draws_less and not phase.idle:  # what rests differs by when it does
            yield k, self._differs_M(k, interval_s, -float(phase.shift_K[k]))

    def of_camps(self, row: Row) -> Iterator[tuple[int, np.ndarray]]:
        """(metric, mask (M,)) of the few that rest while all others spin, or spin while all others rest, in a job that stands."""
        if row.phase.stalled and not (row.phase.moving or row.phase.grace):
            yield self._camp_M(row)

    def _differs_M(self, k: int, interval_s: float, fall: float) -> np.ndarray:
        """Mask (M,): of a job that stands, the one machine whose GPUs draw more power than usual among all, or less, by many times what any
        other's do: all others wait in the same way, and it does something else, but neither works on nor rests. Where it usually stands
        is taken away, and is not. fall: of the power that all draw."""
        found_M = np.zeros(len(self.groups.grouped_s_M), dtype=bool)
        place_M = self.causes.state.place_KM[k]
        place_M = place_M - median_known(place_M)
        moved_M = np.where(self.causes.state.known_KM[k] >= warmup_s(interval_s), place_M - self.causes.state.usual_KM[k], np.nan)
        moved_M -= median_known(moved_M)  # long steps, sampled, have a mean that is not their median
        nearer_M = np.where(place_M * moved_M > 0.0, np.minimum(np.abs(place_M), np.abs(moved_M)), 0.0)
        if np.count_nonzero(~np.isnan(moved_M)) < _CAUSES.fewest:
            return found_M
        first = int(np.argmax(nearer_M))
        times = _N.goes_on_differing if self.groups.grouped_s_M[first] > 0.0 else _HOSTS.waits_alone
        found_M[first] = nearer_M[first] > max(_N.differs, times * float(np.delete(nearer_M, first).max()))
        found_M[first] &= abs(moved_M[first]) < _CAUSES.moved * fall
        return found_M

    def _freed_M(self, row: Row, k: int) -> np.ndarray:
        """Mask (M,): the first, or the few, whose GPUs have let go of their memory, and rest, while all others hold theirs, as those do
        that wait for a process that has died. Where most do, the job has ended: who takes its memory up late, as in a restart, has freed
        none."""
        used_M, time_s = row.raw_KM[k], row.time_s
        usual = median_known(used_M)
        usual = 0.0 if isnan(usual) else usual
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
        if known < _CAUSES.fewest or np.isnan(since_M).all():
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
                if heard < _CAUSES.fewest or rest + spin < _N.clear * heard or not 0 < min(rest, spin) <= _CAUSES.share * heard:
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


def _is_held_up(row: Row) -> bool:
    return row.phase.stalled or row.phase.idle or row.phase.effect >= _CAUSES.felt
