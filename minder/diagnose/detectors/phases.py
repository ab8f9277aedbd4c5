"""What all machines do together: checkpoints, evaluations, restarts, congestion, and the echo of a fault in everybody's step.

`moving`: the common level is on its way; machines whose samples lag look odd for a moment and no machine is judged.
`idle`: the GPUs of (nearly) everybody rest, as in a checkpoint, an evaluation or a restart; spinning in a stalled collective is not
idle. `picks_up`: work has begun after a rest that was taken for the usual level. `effect`: 0..1, how plainly the common level of the
training has left its usual place: the second witness of a fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Row

__all__ = ["Phase", "PhaseState", "Phases", "PhasesNumbers"]


@dataclass(frozen=True, slots=True)
class PhasesNumbers:
    """Section [phases] of detector.toml: what each number is stands there."""

    slow_s: float
    picked_up: float
    hardly_fell: float
    picked_up_s: float
    settled: float
    counts_z: float
    congested: float
    stood: float
    ended: float
    back: float
    again_s: float
    before_s: float
    after_s: float
    after_intervals: float
    echoes_s: float
    shift_s: float
    shift_least: float
    long_shift_s: float
    long_shift_least: float
    rest_duty: float
    rest_graphics: float
    rest_power: float
    rest_sm: float
    rested: float
    at_rest: float
    felt: float
    plainly_felt: float
    lately_s: float
    lately_intervals: float
    hiccup_s: float
    sustained_s: float
    picked_up_intervals: float
    fast_s: float
    fast_intervals: float
    jump_sizes: float
    jump: float
    jitter_s: float
    bounded: float
    movers: float
    lag_intervals: float
    lag_s: float
    calm: float
    disturbed: float
    long_rest_s: float
    far: float
    hardly: float
    shift_scale_s: float
    deviate: float
    grace_s: float
    checkpoint_s: float
    most_grace_s: float
    grace_share: float
    unknown: float
    counts_span: float
    stands: int
    long_stand_s: float
    usual_stand: float
    stand_kept: float


_N = numbers("phases", PhasesNumbers)

_SHIFTS = (("shift_K", "shift_scale_K"), ("long_shift_K", "long_shift_scale_K"))
# Whose level falls far when GPUs rest; the first that is exported decides. Duty cycle and graphics activity stay high in a stalled
# collective; power and SM activity fall then too, but not as far.
_RESTING = ("gpu_duty_cycle_ratio", "gpu_graphics_activity_ratio", "gpu_power_draw_watts", "gpu_sm_activity_ratio")
_NO_REST = "gpu_power_draw_watts"  # what a GPU draws at rest differs by model


@dataclass(slots=True)
class PhaseState(State):
    common_K: np.ndarray = per("K", np.nan)  # slow common level
    common_n_K: np.ndarray = per("K")
    fast_K: np.ndarray = per("K", np.nan)  # fast common level
    center_K: np.ndarray = per("K", np.nan)  # the common level of the last row
    jitter_K: np.ndarray = per("K", np.nan)  # usual distance of the common level from the fast one
    shift_K: np.ndarray = per("K")  # smoothed distance from the slow one
    shift_scale_K: np.ndarray = per("K", np.nan)  # and its usual size
    long_shift_K: np.ndarray = per("K")  # the same, smoothed over half a minute: long iterations and few scrapes blur the short one
    long_shift_scale_K: np.ndarray = per("K", np.nan)
    moving_since_s: float = -np.inf
    moving_until_s: float = -np.inf
    idle_since_s: float = np.nan
    grace_until_s: float = -np.inf
    effect_since_s: float = np.nan
    felt_s: float = -np.inf  # when the training was last seen to be slower than usual, or to stand
    stood_s: float = -np.inf  # when the training last stood
    stands_since_s: float = np.nan  # when it came to stand that time
    ran_s: float = np.inf  # for how long it has run since, rests left out
    stands_since_K: np.ndarray = per("K", np.nan)  # the same of each kind of work
    ran_s_K: np.ndarray = per("K", np.inf)
    risen_since_s: float = np.nan
    stands: float = 0.0  # how often it has stood and run again
    stood_for_s: float = 0.0  # for how long it stood the last time
    longest_stand_s: float = 0.0  # for how long at most, forgotten slowly


class Phases(Stage):
    """The job as a whole in this row: `row.phase`."""

    state: PhaseState

    def update(self, row: Row) -> None:
        row.phase = self.follow_phase(row.traits, row.time_s, row.center_K, (row.status.gap_s, row.status.interval_s))
        row.phase.usually_rests = self._rests(row.traits, self.state.common_K) and self._rests(row.traits, row.center_K)

    def follow_phase(self, traits: TraitTable, time_s: float, center_K: np.ndarray, pace: tuple[float, float]) -> Phase:
        """One row. center_K: median of all machines, scaled; pace: (seconds since the last row, usual scrape interval)."""
        gap_s, interval_s = pace
        known_K = ~np.isnan(center_K)
        watched_K = traits.activity_K & known_K
        moving, moves = self._follow_fast(center_K, watched_K, (time_s, gap_s, interval_s))
        idle = self._is_idle(traits, center_K)
        shift_K = self._follow_shift(center_K, (gap_s, interval_s), idle)
        idle_s = self._note_idle(time_s, idle, interval_s)
        picks_up = self._picks_up(traits, watched_K, (time_s, interval_s)) and not moving
        if picks_up:
            self._reset_baseline(center_K)
            shift_K = self.state.shift_K
        grace = time_s < self.state.grace_until_s
        # what a phase leaves behind for a moment is no effect of a fault
        effect, harm = (0.0, 0.0) if grace else self._effect(watched_K, traits.works_K1[:, 0])
        if idle or grace:
            pass
        elif effect < _N.felt:
            self.state.effect_since_s = np.nan
        elif isnan(self.state.effect_since_s):
            self.state.effect_since_s = time_s
        if effect >= _N.felt:
            self.state.felt_s = time_s
        phase = Phase(moving, idle, idle_s, grace, effect, self.state.effect_since_s, shift_K, picks_up=picks_up, harm=harm)
        phase.arrived, phase.since_move_s = moving and not moves, time_s - self.state.moving_since_s
        stopped_K = watched_K & (shift_K < _N.stood)
        phase.stalled = bool(stopped_K.any())
        self._note_standing(phase, stopped_K, time_s, gap_s)
        if not (phase.stalled and not idle and not grace) and effect > 0.0 and time_s - self.state.stood_s <= _N.echoes_s:
            phase.over = self._has_come_back(watched_K)
        if effect > 0.0 and not idle and not grace:
            phase.sustained = (
                effect * float(np.clip((time_s - phase.effect_since_s - _N.hiccup_s) / _N.sustained_s, 0.0, 1.0))
                if effect >= _N.felt
                else 0.0
            )
        return phase

    def joined(self, since_X: np.ndarray, phase: Phase, interval_s: float) -> np.ndarray:
        """Mask (X,): what began then, in seconds, may be why the training is slowed, or why it came to stand after it had been."""
        joined_X = np.zeros(len(since_X), dtype=bool)
        for effect_s in {phase.effect_since_s, phase.stands_since_s}:
            after_X = since_X - effect_s
            joined_X |= (after_X > -_N.before_s) & (after_X < _N.after_s + _N.after_intervals * interval_s)
        return joined_X

    def too_late_s(self, phase: Phase, interval_s: float) -> float:
        """From when on nothing that begins is why the training stands; infinite while it does not. Where a job hangs, watchdogs end its
        other processes one by one, minutes later."""
        if not phase.stalled or phase.effect < _N.plainly_felt:
            return inf
        began_s = [since_s for since_s in (phase.effect_since_s, phase.stands_since_s) if not isnan(since_s)]
        return max(began_s, default=inf) + _N.after_s + _N.after_intervals * interval_s

    def is_slowed(self, time_s: float, interval_s: float) -> bool:
        """Whether the training is slower than usual, or stands, or did so a moment ago: a slow job's level hovers about what is felt."""
        return time_s - self.state.felt_s <= max(_N.lately_s, _N.lately_intervals * interval_s)

    def risen_congestion_K(self, traits: TraitTable, phase: Phase) -> np.ndarray:
        """Mask (K,) of the congestion counters that have risen for all machines: to twice their usual, or less, but for half a minute,
        plainly, and while the training is slowed."""
        long_K = self.state.long_shift_K
        least_K = np.maximum(_N.counts_z * _known(self.state.long_shift_scale_K), traits.floor_K1[:, 0])
        return np.asarray(traits.congestion_K & ((phase.shift_K > _N.congested) | ((phase.effect >= _N.felt) & (long_K > least_K))))

    def _note_standing(self, phase: Phase, stopped_K: np.ndarray, time_s: float, gap_s: float) -> None:
        """When the training came to stand. A checkpoint in between, or a few rows in which long steps blur it, does not end that. Where one
        kind of work has been low for long, most of what stands may have come to stand later."""
        state = self.state
        if not phase.idle and not phase.grace:
            if phase.stalled:
                state.stood_s = time_s
                if state.ran_s > _N.again_s:
                    state.stands_since_s = time_s
                    if state.stood_for_s >= _N.long_stand_s:
                        state.longest_stand_s = max(state.stood_for_s, _N.stand_kept * state.longest_stand_s)
                        state.stands += 1.0
                    state.stood_for_s = 0.0
                if phase.effect >= _N.felt:
                    state.stood_for_s += gap_s
            state.ran_s = 0.0 if phase.stalled else state.ran_s + gap_s
            if phase.stalled:
                state.stands_since_K = np.where(stopped_K & (state.ran_s_K > _N.again_s), time_s, state.stands_since_K)
            state.ran_s_K = np.where(stopped_K, 0.0, state.ran_s_K + gap_s)
        if phase.stalled and state.ran_s == 0.0:
            since_s = np.sort(state.stands_since_K[state.ran_s_K == 0.0])
            phase.stands_since_s = state.stands_since_s
            phase.stopped_s = max(state.stands_since_s, float(since_s[len(since_s) // 2]) if len(since_s) > 1 else -inf)
            usual_s = _N.usual_stand * state.longest_stand_s if state.stands >= _N.stands else 0.0
            phase.usual_stand = time_s - state.stands_since_s < usual_s

    def _picks_up(self, traits: TraitTable, watched_K: np.ndarray, pace: tuple[float, float]) -> bool:
        """The GPUs have worked plainly more than they usually do, by no measure less, for longer than an iteration's own ups and downs:
        what was usual so far was a rest, such as a start-up. pace: (time of the row, usual scrape interval).

        No fault makes them: where peers spin in a stalled collective their duty cycle may rise, so it is not asked, but what they do in it
        falls. Links tell only where the GPUs do not: a start-up that loads its data keeps them busier than the training does.
        """
        time_s, interval_s = pace
        reported_K = watched_K & traits.compute_K
        risen_K = (self.state.fast_K - self.state.common_K)[reported_K if reported_K.any() else watched_K & traits.links_K]
        risen_K = risen_K[~np.isnan(risen_K)]
        if not (len(risen_K) and risen_K.max() > _N.picked_up and risen_K.min() > -_N.hardly_fell):
            self.state.risen_since_s = np.nan
            return False
        if isnan(self.state.risen_since_s):
            self.state.risen_since_s = time_s
        return time_s - self.state.risen_since_s >= max(_N.picked_up_s, _N.picked_up_intervals * interval_s)

    def _reset_baseline(self, center_K: np.ndarray) -> None:
        """This level is the usual one from now on."""
        known_K = ~np.isnan(center_K)
        self.state.common_K = np.where(known_K, center_K, self.state.common_K)
        self.state.common_n_K = np.zeros(len(center_K))
        for shift, scale in _SHIFTS:
            setattr(self.state, shift, np.zeros(len(center_K)))
            setattr(self.state, scale, np.full(len(center_K), np.nan))
        self.state.effect_since_s = np.nan
        self.state.risen_since_s = np.nan

    def _follow_fast(self, center_K: np.ndarray, watched_K: np.ndarray, pace: tuple[float, float, float]) -> tuple[bool, bool]:
        """(moving, whether the common level moves in this very row)."""
        time_s, gap_s, interval_s = pace
        fast_K, jitter_K = self.state.fast_K, self.state.jitter_K
        gain = 1.0 - np.exp(-gap_s / max(_N.fast_s, _N.fast_intervals * interval_s))
        step_K = center_K - fast_K
        size_K = np.abs(step_K)
        usual_K = _known(jitter_K)
        jump_K = watched_K & (size_K > np.maximum(_N.jump_sizes * usual_K, _N.jump))
        if jump_K.any():  # after a large step the fast level lags for minutes: what has settled is not on its way
            jump_K &= ~(np.abs(center_K - self.state.center_K) <= _N.settled * size_K)
        self.state.center_K = np.where(np.isnan(center_K), self.state.center_K, center_K) if isnan(center_K.sum()) else center_K
        slow = 1.0 - np.exp(-gap_s / _N.jitter_s)
        bounded_K = np.minimum(size_K, _N.bounded * usual_K)
        followed_K, jittered_K = fast_K + gain * step_K, usual_K + slow * (bounded_K - usual_K)
        if isnan(step_K.sum()):
            followed_K = np.where(np.isnan(center_K), fast_K, np.where(np.isnan(fast_K), center_K, followed_K))
            jittered_K = np.where(np.isnan(size_K), jitter_K, jittered_K)
        self.state.fast_K, self.state.jitter_K = followed_K, jittered_K
        moves = bool(np.count_nonzero(jump_K) >= max(1, _N.movers * np.count_nonzero(watched_K)))
        if moves:
            if time_s > self.state.moving_until_s:
                self.state.moving_since_s = time_s
            self.state.moving_until_s = time_s + max(_N.lag_intervals * interval_s, _N.lag_s)
        return bool(time_s <= self.state.moving_until_s), moves

    def _follow_shift(self, center_K: np.ndarray, pace: tuple[float, float], idle: bool) -> np.ndarray:
        """Smoothed distance of the common level from its slow self (learned in `learn_common`)."""
        distance_K = center_K - self.state.common_K
        if isnan(distance_K.sum()):
            distance_K = np.where(np.isnan(distance_K), 0.0, distance_K)
        gap_s, interval_s = pace
        for (shift, _), (tau_s, _) in zip(_SHIFTS, _paces(), strict=True):
            if idle and shift == "long_shift_K":
                continue  # a checkpoint must not echo for a minute
            gain = 1.0 - np.exp(-gap_s / max(tau_s, interval_s))
            shift_K = getattr(self.state, shift)
            setattr(self.state, shift, shift_K + gain * (distance_K - shift_K))
        return self.state.shift_K

    def _has_come_back(self, watched_K: np.ndarray) -> bool:
        """What fell farthest, smoothed over half a minute, still counts as an effect there, and has come back in the shorter view."""
        long_K = self.state.long_shift_K[watched_K]
        lowest = int(np.argmin(long_K))
        least = _N.counts_z * max(float(_known(self.state.long_shift_scale_K)[watched_K][lowest]), _N.long_shift_least)
        return bool(long_K[lowest] < -least and self.state.shift_K[watched_K][lowest] > _N.back * long_K[lowest])

    def _effect(self, watched_K: np.ndarray, works_K: np.ndarray) -> tuple[float, float]:
        """(effect, harm) by the plainer of the two smoothed shifts. works_K: metrics of which only a fall does harm."""
        effect, harm = 0.0, 0.0
        for (shift, scale), (_, least) in zip(_SHIFTS, _paces(), strict=True):
            z_K = (getattr(self.state, shift) / np.maximum(_known(getattr(self.state, scale)), least))[watched_K]
            size_K = np.abs(z_K)
            if len(z_K) and size_K.max() > _N.counts_z:
                effect = max(effect, _certainty(size_K))
                rested_K = getattr(self.state, shift)[watched_K] > _N.rested  # who spins has worked before; so far up it had rested
                harm = max(harm, _certainty(np.where(works_K[watched_K], -z_K, np.where(rested_K, 0.0, size_K))))
        if np.count_nonzero(self.state.long_shift_K[watched_K] < _N.ended) >= 2:  # it stands, however much it usually moves
            return 1.0, 1.0
        return effect, harm

    def learn_common(self, center_K: np.ndarray, gap_s: float, phase: Phase) -> None:
        """Let the slow common level follow; hardly while the job is disturbed."""
        slow_K, n_K = self.state.common_K, self.state.common_n_K
        known_K = ~np.isnan(center_K)
        if phase.idle and phase.idle_s < _N.long_rest_s:
            return
        calm = 1.0 if phase.effect < _N.calm else _N.disturbed
        self.state.common_n_K = n_K + np.where(known_K, gap_s * calm, 0.0)
        gain_K = np.maximum(gap_s * calm / np.maximum(self.state.common_n_K, gap_s), 1.0 - np.exp(-gap_s * calm / _N.slow_s))
        step_K = center_K - slow_K
        self.state.common_K = np.where(known_K, np.where(np.isnan(slow_K), center_K, slow_K + gain_K * step_K), slow_K)
        for (shift, scale), (tau_s, _) in zip(_SHIFTS, _paces(), strict=True):
            usual_K = _known(getattr(self.state, scale))
            size_K = np.abs(getattr(self.state, shift))
            share_K = np.where(size_K > _N.far * usual_K, _N.hardly, 1.0)  # what is far off hardly counts as usual
            gain = 1.0 - np.exp(-gap_s * calm / (_N.shift_scale_s + tau_s))
            setattr(self.state, scale, usual_K + gain * share_K * (_N.deviate * np.minimum(size_K, _N.bounded * usual_K) - usual_K))

    def rest_M(self, traits: TraitTable, scaled_KM: np.ndarray) -> np.ndarray:
        """(M,): how far the first of the levels that tell rest from spinning lies below the usual one, of those that a machine exports
        now (a gauge that stands to the digit is no data); 1: at rest, NaN: unknown."""
        fall_M = np.full(scaled_KM.shape[1], np.nan)
        for name, least in zip(_RESTING, _rest_falls(), strict=True):
            k = traits.place.get(name)
            if k is not None and not isnan(self.state.common_K[k]):
                fall_M = np.where(np.isnan(fall_M), (self.state.common_K[k] - scaled_KM[k]) / least, fall_M)
                if not np.isnan(fall_M).any():
                    break
        return fall_M

    def rests_M(self, traits: TraitTable, scaled_KM: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
        """Masks (M,): of whom all of these levels that are known have fallen by more than this share of what they fall in a rest, and of
        whom one has not; of one that computes on some gauges may fall."""
        works_M, known_M = np.zeros(scaled_KM.shape[1], dtype=bool), np.zeros(scaled_KM.shape[1], dtype=bool)
        for name, least in zip(_RESTING, _rest_falls(), strict=True):
            k = traits.place.get(name)
            if k is not None and not isnan(self.state.common_K[k]):
                fall_M = self.state.common_K[k] - scaled_KM[k]
                with np.errstate(invalid="ignore"):
                    works_M |= fall_M <= share * least
                known_M |= ~np.isnan(fall_M)
        return known_M & ~works_M, works_M

    def _is_idle(self, traits: TraitTable, center_K: np.ndarray) -> bool:
        """The first of these levels that is known in this row lies far below its usual place."""
        for name, least in zip(_RESTING, _rest_falls(), strict=True):
            k = traits.place.get(name)
            if k is not None:
                fall = float(self.state.common_K[k] - center_K[k])
                if fall == fall:
                    return fall > least
        return False

    def _rests(self, traits: TraitTable, level_K: np.ndarray) -> bool:
        """This level of the first of these metrics that is known is that of GPUs at rest, whatever is usual."""
        for name in _RESTING:
            k = traits.place.get(name)
            if k is not None and name != _NO_REST and not isnan(level_K[k]):
                return traits.unscale(k, float(level_K[k])) < _N.at_rest
        return False

    def _note_idle(self, time_s: float, idle: bool, interval_s: float) -> float:
        since_s = self.state.idle_since_s
        if idle:
            if isnan(since_s):
                self.state.idle_since_s = time_s
                return 0.0
            return time_s - since_s
        if not isnan(since_s):
            lasted_s = time_s - since_s
            grace_s = _N.grace_s + interval_s if lasted_s < _N.checkpoint_s else min(_N.most_grace_s, _N.grace_share * lasted_s)
            self.state.grace_until_s = time_s + grace_s
            self.state.idle_since_s = np.nan
        return 0.0


@dataclass(slots=True)
class Phase:
    """The job as a whole in one row. shift_K: smoothed common deviation in scaled units.

    stalled: some part of the training has all but ended for everybody. sustained: the effect, as far as it has lasted beyond what a
    phase or a hiccup would. arrived: the common level moves no more since the last row, though `moving` still grants lagging samples
    their time. since_move_s: how long ago the last common move began. over: the training stood for a while and works again; the effect
    only echoes. stands_since_s: when it came to stand, NaN while it does not; stopped_s: when most of what stands did, which may be later.
    harm: the effect, but for work and traffic that have only become more for all machines: a job that does more than it usually does is
    harmed by none. usually_rests: GPUs rest now, as in most samples: work comes in bursts. usual_stand: it has stood as long before, again
    and again, and went on.
    """

    moving: bool
    idle: bool
    idle_s: float
    grace: bool
    effect: float
    effect_since_s: float
    shift_K: np.ndarray
    stalled: bool = False
    sustained: float = 0.0
    picks_up: bool = False
    arrived: bool = False
    since_move_s: float = np.inf
    over: bool = False
    stands_since_s: float = np.nan
    stopped_s: float = np.nan
    harm: float = 0.0
    usually_rests: bool = False
    usual_stand: bool = False

    @property
    def steady(self) -> bool:
        """Whether all work as they do between moves and rests."""
        return not (self.moving or self.idle or self.grace)


def _paces() -> tuple[tuple[float, float], ...]:
    """Of each of _SHIFTS: (smoothed over, s; smallest usual size believed)."""
    return (_N.shift_s, _N.shift_least), (_N.long_shift_s, _N.long_shift_least)


def _rest_falls() -> tuple[float, ...]:
    """How far each level of _RESTING falls when GPUs rest."""
    return _N.rest_duty, _N.rest_graphics, _N.rest_power, _N.rest_sm


def _known(usual_K: np.ndarray) -> np.ndarray:
    """Usual sizes; a plausible one where nothing is known yet."""
    return np.where(np.isnan(usual_K), _N.unknown, usual_K) if isnan(usual_K.sum()) else usual_K


def _certainty(size_K: np.ndarray) -> float:
    """0..1; two metrics that have left their place make it certain. size_K: by how many usual sizes."""
    return float(min(1.0, np.clip((size_K - _N.counts_z) / _N.counts_span, 0.0, 1.0).sum() / min(2, len(size_K))))
