"""The default detector: online, constant work and memory per grid row, a few passes of array arithmetic over (metrics, machines).

A machine is anomalous as far as it differs from its peers more than it usually does, in several independent ways, for long enough,
while the training is slowed and no other machine differs as much. What each word means has its own module: presence, reference, deviants,
phases, evidence. Legend: K metrics, M machines, F families, X machines that stand out in a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.diagnose.detectors import (
    clocks,
    contradiction,
    coupling,
    far_clocks,
    forerunner,
    groups,
    lasting,
    onset,
    out_of_step,
    phases,
    presence,
    reference,
    returning,
    returns,
)
from minder.diagnose.detectors.absence import absence_M, at_once_s
from minder.diagnose.detectors.deviants import Counting, Deviants, Stages, find_deviants
from minder.diagnose.detectors.evidence import (
    credit,
    distinctness,
    family_evidence,
    loneliness,
    loud_metrics,
    needed_z,
    shown,
    summed,
)
from minder.diagnose.detectors.explain import Explained, explain
from minder.diagnose.detectors.forerunner import note_forerunners, recall_forerunner
from minder.diagnose.detectors.memory import Memory
from minder.diagnose.detectors.out_of_step import expected_late_M, in_step
from minder.diagnose.detectors.peers import Ordered
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.presence import Seen, told_s
from minder.diagnose.detectors.standstill import standstill_z
from minder.diagnose.detectors.traits import REACHING, TraitTable, with_devices
from minder.model.evidence import Scores
from minder.model.telemetry import Window

__all__ = ["DefaultConfig", "DefaultDetector"]


@dataclass(frozen=True, slots=True)
class DefaultConfig:
    """How much evidence convicts, and how it is heard.

    patience_s: how long one fully deviating family of one machine must last to convict it, with the training suffering.
    warmup_s: data needed before anything is said. z_span: from the first deviation that counts to a full one, in usual sizes.
    stayed: weight of "its peers moved and it did not"; came_back: of "it was apart and now stands where they stand".
    leak_s: how fast evidence that has ended is forgotten. smooth_s, slow_s: the two paces at which deviations are smoothed.
    far_z: what is farther off is not learned; relearn_s: after so long it is, as the machine's new usual place, unless it was called
    anomalous.
    effect_boost: how much more evidence weighs while the training is slowed since about then; eager_z: by how much smaller a deviation
    counts then. most_alone, most: the most families heard at once, without and with such an effect: a clock that is off by seconds
    looks like all of them for these seconds.
    least_s: no verdict before the deviation is so old, links_least_s if only the network's metrics show it: links flap and heal;
    lone_least_s if one metric is heard alone: it is off for half a minute now and then.
    lasting_s: what stands apart plainly for so long, alone, is convicted even if it is no plain change and the training is hardly slowed.
    alone: weight of what neither reaches the training nor is a plain change: one such family never convicts, two take long.
    most_at_once: share of what convicts that one row may add; sure_at_once: of a machine that has plainly changed, while the training
    stands and for longer than a clock is off, where samples are far apart, so that two rows convict. kept: share that is left of it if
    all others move right after: where samples are far apart, one machine's shows a job-wide change before the others' do.
    lone_samples: of a family that is heard alone, one row adds no more than convicts after so many samples, times the logarithm of the
    number of series, and only what its newest sample shows: of many series, by chance one is off for a sample or three while the
    training is slowed for another reason.
    together_s: machines that turn odd within this time, or two scrapes, were hit together; they are named after group_least_s at
    group_pace. So long must machines stand apart in a cause of slowness, too.
    """

    patience_s: float = 90.0
    warmup_s: float = 30.0
    z_span: float = 5.0
    stayed: float = 0.35
    came_back: float = 0.2
    leak_s: float = 25.0
    smooth_s: float = 4.0
    slow_s: float = 30.0
    relearn_s: float = 900.0
    far_z: float = 3.5
    effect_boost: float = 3.0
    eager_z: float = 1.0
    most_alone: float = 2.0
    most: float = 4.0
    alone: float = 0.2
    most_at_once: float = 0.4
    sure_at_once: float = 0.51
    kept: float = 0.3
    lone_samples: float = 0.5
    least_s: float = 10.0
    links_least_s: float = 25.0
    lone_least_s: float = 25.0
    lasting_s: float = 180.0
    together_s: float = 10.0
    group_least_s: float = 120.0
    group_pace: float = 0.25


_FIELDS: dict[str, tuple[str, float]] = {
    "score_M": ("M", 0.0),
    "since_M": ("M", np.nan),
    "slow_waited_s": ("", 3.0),  # since the slow pace was last updated; the first row updates it
    "learn_waited_s": ("", 3.0),
    "odd_KM": ("KM", 0.0),  # seconds for which a series has been far off
}
_STEP_S = 3.0  # the slow pace and the learning take steps of this length or one row, if that is longer
_SUSPICIOUS = 1 / 3  # of what convicts: from there on a machine teaches nothing of what is usual
_BY_ITSELF = 1.5  # of what convicts: from there on a machine at which a sign came back is accused of what it does now
_CALM = 0.35  # strength below which evidence leaks
_GROUPED_S = 30.0  # who has stood apart with others for so long teaches nothing of what is usual
_WITNESS = 0.5  # evidence of a cause of slowness from which on no other machine must feel it
_APART_S = 9.0  # rows that are so far apart may convict by two
_NETWORK = ("fabric", "congestion", "tcp")


@dataclass(slots=True)
class _Row:
    """A scored row that waits to be learned."""

    center_K: np.ndarray
    scaled_KM: np.ndarray
    seen: Seen
    phase: Phase


@dataclass(slots=True)
class _Strength:
    """How strongly each machine's deviations speak; network_M: only the network's metrics do; reached_M: it has plainly changed;
    lone_M: 0..1, 1 if one family speaks alone, 0 from two on that speak alike; single_M: of that family one metric does;
    shown_M: 0..1, how much of it the newest sample shows, 1 where no sample speaks; told_s_M: seconds since what speaks last spoke;
    clear_M: 0..1, how much of what reaches the training the newest sample shows, whether it is a plain change or not; held_M: it stands,
    and no other machine feels it."""

    total_M: np.ndarray
    network_M: np.ndarray
    reached_M: np.ndarray
    lone_M: np.ndarray
    single_M: np.ndarray
    shown_M: np.ndarray
    told_s_M: np.ndarray
    clear_M: np.ndarray
    held_M: np.ndarray


class DefaultDetector:
    """Detector (contract.py). `stages`: machine to pipeline stage(s); machines of one stage do the same work."""

    def __init__(self, stages: Mapping[str, object] | None = None, config: DefaultConfig | None = None) -> None:
        self.config = config or DefaultConfig()
        self._stage_of = dict(stages or {})
        self._memory = Memory(
            {**_FIELDS, **presence.FIELDS, **phases.FIELDS, **reference.FIELDS, **forerunner.FIELDS, **lasting.FIELDS}
            | {**out_of_step.FIELDS, **clocks.FIELDS, **onset.FIELDS, **returning.FIELDS, **contradiction.FIELDS}
            | {**coupling.FIELDS, **far_clocks.FIELDS, **groups.FIELDS, **returns.FIELDS}
        )
        self._clocks = clocks.Clocks(self._memory)
        self._far_clocks = far_clocks.FarClocks(self._memory)
        self._traits = TraitTable(())
        self._stages = Stages.of(())
        self._names: tuple[str, ...] = ()  # of the yardsticks in use
        self._slow_out_M: np.ndarray | None = None  # who stands out at the slow pace, until it is updated
        self._start_z = 0.0
        self._lone_share = self.config.most_at_once
        self._pending: list[_Row] = []

    def score(self, window: Window) -> list[Scores]:
        metrics, values_TKM = with_devices(window)
        self._follow(window.machines, metrics)
        self._pending = []
        return [self._score_row(window, t, values_TKM[t]) for t in range(len(window.times_T))]

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        barred_M = np.array([name in anomalous for name in self._memory.machines], dtype=bool) if anomalous else None
        for row in self._pending:  # what is usual changes slowly: a few times a minute is often enough
            waited_s = min(self._memory.number("learn_waited_s"), _STEP_S) + row.seen.gap_s
            self._memory.set_number("learn_waited_s", 0.0 if waited_s >= _STEP_S else waited_s)
            if waited_s >= _STEP_S:
                self._learn_row(row, barred_M, waited_s)
        self._pending = []

    def state(self) -> dict[str, Any]:
        clocks_state = {"clocks": self._clocks.state(), "far": self._far_clocks.state()}
        return {"detector": "default", "version": 2, **clocks_state, **self._memory.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._memory.load(state)
        self._clocks.load(state.get("clocks", {}))
        self._far_clocks.load(state.get("far", {}))
        self._pending = []
        self._follow(self._memory.machines, self._memory.metrics, fresh=True)

    def _follow(self, machines: Sequence[str], metrics: Sequence[str], fresh: bool = False) -> None:
        same = machines is self._memory.machines or tuple(machines) == self._memory.machines
        if not fresh and same and tuple(metrics) == self._memory.metrics:
            return
        renamed = tuple(metrics) != self._memory.metrics
        self._memory.follow(machines, metrics)
        if renamed:  # they stand under other numbers now
            self._memory.forget(("sign_k_M",))
        self._traits = TraitTable(metrics)
        self._stages = Stages.of([self._stage_of.get(name) for name in machines])
        self._clocks.follow(self._traits, self._stages.members)
        self._far_clocks.follow(self._traits, self._stages.members)
        several = len(self._stages.members) > 1
        self._names = ("all_quick", "all_slow", "stage_quick", "stage_slow") if several else ("all_quick", "all_slow")
        self._slow_out_M = None
        telling = int((self._traits.weight_K1 > 0).sum())
        self._start_z = needed_z(len(machines), telling)
        samples = self.config.lone_samples * np.log(max(2.0, len(machines) * telling))
        self._lone_share = min(self.config.most_at_once, 1.0 / max(1.0, samples))

    def _score_row(self, window: Window, t: int, raw_KM: np.ndarray) -> Scores:
        memory, traits = self._memory, self._traits
        time_s = float(window.times_T[t])
        seen = presence.observe_row(memory, traits, time_s, raw_KM, window.present_TM[t])
        scaled_KM = traits.scale(raw_KM)
        if seen.usable_KM is not None:
            scaled_KM[~seen.usable_KM] = np.nan
        scaled_KM -= memory["standing_KM"]
        ordered = Ordered(scaled_KM, whole=seen.usable_KM is None)
        center_K = ordered.median_K()
        phase = phases.follow_phase(memory, traits, time_s, center_K, (seen.gap_s, seen.interval_s))
        if phase.picks_up:  # what was learned of a rest says nothing of work
            scaled_KM += memory["standing_KM"]
            ordered = Ordered(scaled_KM, whole=seen.usable_KM is None)
            memory.forget((*reference.FIELDS, *forerunner.FIELDS, *lasting.FIELDS, *out_of_step.FIELDS, "odd_KM", "score_M", "since_M"))
            self._stages.middles.clear()
            self._clocks.forget_rows()
            self._far_clocks.forget_rows()
        distances = reference.distances(scaled_KM, ordered, self._stages.members)
        self._far_clocks.observe_levels(self._clocks.observe(scaled_KM, center_K, seen.gap_s), seen.gap_s)
        self._clocks.align(distances, scaled_KM, but=self._far_clocks.align(distances, scaled_KM))
        self._smooth(distances, seen, phase)
        deviants = self._find(distances, phase, seen.gap_s)
        strength = self._strength(deviants, seen, phase, time_s)
        groups.cause_group(memory, traits, phase, seen, self._start_z)
        returns.follow_returns(memory, traits, scaled_KM, phase, seen, time_s)
        strength.held_M = self._held_M(deviants, seen, phase)
        strength.shown_M[returning.late_M(memory, traits, scaled_KM, seen, phase, time_s)] = 0.0
        self._accumulate(strength, seen, phase, time_s)
        self._pending.append(_Row(center_K, scaled_KM, seen, phase))
        quiet = phase.moving or phase.idle or phase.grace or seen.outage
        deviating_KM = None if window.device_TMK is None else window.device_TMK[t].T
        in_time_s = (at_once_s(phase, seen), phases.too_late_s(phase, seen.interval_s))
        row = Explained(time_s, self.config.patience_s, quiet, in_time_s, seen, deviants, window.devices, deviating_KM)
        return explain(memory, traits, row)

    def _smooth(self, distances: Mapping[str, np.ndarray], seen: Seen, phase: Phase) -> None:
        """Every yardstick at two paces: the quick one speaks in seconds, the slow one hears what noise drowns."""
        memory = self._memory
        unsure = phase.idle or phase.moving or phase.grace  # a rest says nothing of work
        waited_s = min(memory.number("slow_waited_s"), _STEP_S) + seen.gap_s
        memory.set_number("slow_waited_s", 0.0 if waited_s >= _STEP_S else waited_s)
        quick = 1.0 - np.exp(-seen.gap_s / max(self.config.smooth_s, 1.2 * seen.interval_s))
        slow = 0.0 if unsure else 1.0 - np.exp(-waited_s / max(self.config.slow_s, 5.0 * seen.interval_s))
        for yardstick, distance_KM in distances.items():
            reference.smooth(memory, f"{yardstick}_quick", distance_KM, float(quick))
            if waited_s >= _STEP_S:
                reference.smooth(memory, f"{yardstick}_slow", distance_KM, float(slow))
        if waited_s >= _STEP_S:
            self._slow_out_M = None

    def _find(self, distances: Mapping[str, np.ndarray], phase: Phase, gap_s: float) -> Deviants:
        """The least deviation that counts is smaller while the training is slowed."""
        memory, config, start = self._memory, self.config, self._start_z
        least = start - config.eager_z
        if self._slow_out_M is None:
            self._slow_out_M = reference.stands_out_M(memory, [name for name in self._names if name.endswith("slow")], least)
        quick_M = reference.stands_out_M(memory, [name for name in self._names if name.endswith("quick")], least)
        still_KM = standstill_z(memory, self._traits, phase)
        out_M = quick_M | self._slow_out_M if still_KM is None else quick_M | self._slow_out_M | (np.abs(still_KM) > least).any(axis=0)
        x = np.flatnonzero(out_M)
        unsettled = memory.number("row_s") - memory.number("moving_since_s") <= clocks.OFF_S
        counting = Counting(start - config.eager_z * phase.lasting, config.z_span, config.stayed, config.came_back, unsettled, still_KM)
        return find_deviants(memory, self._traits, self._stages, distances, phase, (x, counting, gap_s))

    def _strength(self, deviants: Deviants, seen: Seen, phase: Phase, time_s: float) -> _Strength:
        config, x = self.config, deviants.machines_X
        found = _Strength(
            *(np.zeros(len(seen.silence_M), dtype=kind) for kind in (float, bool, bool, float, bool, float, float, float, bool))
        )
        found.told_s_M.fill(np.nan)
        found.shown_M.fill(1.0)
        found.reached_M[x] = deviants.reached_X
        if len(x) and deviants.counted_KX.any():
            falls_KX = deviants.z_KX < 0
            families_FX = family_evidence(self._traits, deviants.counted_KX, falls_KX)
            reaching_X, network_X = (summed(self._traits, families_FX, names) for names in (REACHING, _NETWORK))
            total_X = families_FX.sum(axis=0)
            found.network_M[x] = network_X > 0.9 * total_X
            heard_X = reaching_X + np.minimum(total_X - reaching_X, reaching_X)  # the host's own signs confirm, they do not carry
            loud_KX = loud_metrics(self._traits, deviants.counted_KX)
            found.lone_M[x], found.shown_M[x] = loneliness(families_FX), shown(self._traits, loud_KX, deviants.shown_KX, falls_KX)
            found.told_s_M[x] = told_s(self._memory, seen, x, loud_KX & (deviants.counted_KX > 0.0))
            found.single_M[x] = (found.lone_M[x] > 0.5) & (np.count_nonzero(loud_KX, axis=0) == 1)
            found.clear_M[x] = np.minimum(reaching_X, 1.0) * found.shown_M[x]
            suffers_X = deviants.suffering_X(phase)
            since_X, afterwards_X = onset.turned_odd(self._memory, deviants, phase, seen, time_s)
            joined_X = (suffers_X > 0.0) & ~afterwards_X & phases.joined(since_X, phase, seen.interval_s)
            boost_X = np.maximum(np.where(deviants.reached_X, 1.0, config.alone), suffers_X * np.where(joined_X, config.effect_boost, 1.0))
            limit_X = np.where(joined_X & (suffers_X > 0.5), config.most, config.most_alone)
            alone_X = np.where(joined_X, 0.5 * phase.lasting * total_X, 0.0)  # signs of the host alone: only if the training is slowed
            found.total_M[x] = np.minimum(np.maximum(np.where(reaching_X > 0.1, heard_X * boost_X, 0.0), alone_X), limit_X)
        if seen.silent_M.any():
            silence_M = absence_M(self._memory, self._traits, seen, phase, time_s, others_odd=bool((found.total_M >= _CALM).any()))
            found.total_M += silence_M
            found.lone_M[silence_M > 0.0] = 0.0  # it speaks for itself: what is smoothed of the machine only echoes
            found.shown_M[silence_M > 0.0] = 1.0
        self._forerun(found, deviants, seen, phase)
        return found

    def _held_M(self, deviants: Deviants, seen: Seen, phase: Phase) -> np.ndarray:
        witness_M = np.zeros(len(seen.silence_M), dtype=bool)
        traits = self._traits
        causes_KX = traits.causes_K1 & ~traits.falls_K1 & (~traits.jams_K[:, None] | (deviants.z_KX > 0.0))
        witness_M[deviants.machines_X] = (causes_KX & (deviants.counted_KX > _WITNESS)).any(axis=0)
        return coupling.held_M(self._memory, self._traits, phase, seen, witness_M)

    def _forerun(self, found: _Strength, deviants: Deviants, seen: Seen, phase: Phase) -> None:
        """The first mover stays the witness while the training stands, if no other machine is one."""
        if phase.idle or phase.grace or phase.moving:
            return
        if phase.effect < 0.25:
            when = (self._memory.number("row_s"), seen.gap_s, seen.interval_s)
            note_forerunners(self._memory, self._traits, deviants, found.total_M[deviants.machines_X], when)
        elif phase.stalled and phase.lasting > 0.0:
            first = recall_forerunner(self._memory, phase, seen.interval_s)
            if first is not None and not seen.silent_M[first[0]]:
                m, strength = first
                found.total_M[m] = max(found.total_M[m], min(self.config.effect_boost * strength * phase.lasting, self.config.most_alone))
                found.shown_M[m] = 1.0

    def _accumulate(self, strength: _Strength, seen: Seen, phase: Phase, time_s: float) -> None:
        memory, config = self._memory, self.config
        score_M, since_M, total_M = memory["score_M"], memory["since_M"], strength.total_M
        unknown = np.isnan(since_M).all() and np.isnan(memory["odd_from_M"]).all()
        returned_x = returns.returned_x(memory)
        lasted = memory["lasted_s_M"].any() or memory["grouped_s_M"].any() or len(returned_x)
        if unknown and not (total_M.any() or score_M.any() or lasted):
            return  # no machine is odd or was: all of what follows would leave everything as it is
        if phase.moving and memory.number("moving_since_s") == time_s:  # its sample came first of all, no more
            score_M = np.where(since_M > time_s - max(2.0, 1.2 * seen.interval_s), config.kept * score_M, score_M)
        told_M = seen.news_M | seen.silent_M
        if not phase.moving:
            leak_s = config.leak_s * (1.0 + 7.0 * phase.lasting)
            calm_M = (total_M < _CALM * (1.0 - 0.7 * phase.lasting)) & told_M
            score_M = np.where(calm_M, score_M * np.exp(-seen.gap_s / leak_s), score_M)
        score_M = np.where(memory["passed_M"] > 0.0, 0.0, score_M)
        started_M = np.where(seen.silent_M, time_s - seen.silence_M, time_s)
        since_M = np.where((total_M >= 0.5 * _CALM) & np.isnan(since_M), started_M, since_M)
        score_M, out_M = in_step(memory, total_M, score_M, told_M, (time_s, seen.interval_s, config.kept))
        if out_M.any():
            reference.forget_smooth(memory, self._names, out_M)
        waited_M = _waited_M(strength, seen)
        lasted_x = self._lasted_x(strength, waited_M, seen, phase)
        if total_M.any():
            gained_M = self._pace_M(waited_M, since_M, seen, phase) * total_M**2 * self._share_M(strength, since_M, (phase, seen), time_s)
            stands = phase.stalled and not phase.idle and phase.since_move_s >= clocks.OFF_S
            sure_M = strength.reached_M & (seen.since_news_M >= _APART_S) & stands
            at_once_M = np.where(sure_M, config.sure_at_once, config.most_at_once)
            gained_M = np.minimum(gained_M, config.patience_s * (at_once_M + strength.lone_M * (self._lone_share - at_once_M)))
            gained_M *= strength.shown_M
            gained_M[expected_late_M(memory, time_s, seen.interval_s)] = 0.0
            least_M = np.where(strength.network_M, config.links_least_s, config.least_s)
            young_M = time_s - since_M < np.where(strength.single_M, np.maximum(least_M, config.lone_least_s), least_M)
            young_M |= strength.held_M & (time_s - since_M < coupling.HELD_S)
            limit_M = np.where(young_M, np.maximum(0.95 * config.patience_s, score_M), 4.0 * config.patience_s)
            score_M = np.minimum(score_M + gained_M, limit_M)
        group_x = np.flatnonzero(memory["grouped_s_M"] >= config.group_least_s)
        for x, age_s in ((lasted_x, config.lasting_s), (group_x, config.group_least_s), (returned_x, 0.0)):
            score_M[x] = np.maximum(score_M[x], 1.05 * config.patience_s)
            since_M[x] = np.where(np.isnan(since_M[x]), time_s - age_s, since_M[x])
        memory["returned_M"][returned_x] = 1.0
        memory["returned_M"] *= (score_M >= _SUSPICIOUS * config.patience_s) & (score_M < _BY_ITSELF * config.patience_s)
        memory["in_group_M"][group_x] = float(len(group_x) > 1)
        memory["in_group_M"] *= score_M >= _SUSPICIOUS * config.patience_s
        memory["score_M"] = score_M
        over_M = (score_M < 0.1 * config.patience_s) | (out_M & (score_M < 0.5 * config.patience_s))
        memory["since_M"] = np.where((total_M < 0.1) & over_M, np.nan, since_M)

    def _lasted_x(self, strength: _Strength, waited_M: np.ndarray, seen: Seen, phase: Phase) -> np.ndarray:
        """The machine that has stood apart, alone, for long enough to be convicted. While the training is slowed or rests, other rules
        hold."""
        if not (phase.moving or phase.idle or phase.grace or seen.outage or phase.effect >= 0.25):
            lasting.follow_lasting(self._memory, strength.clear_M, waited_M, 1.5 * seen.interval_s)
        return np.flatnonzero(self._memory["lasted_s_M"] >= self.config.lasting_s)

    def _pace_M(self, waited_M: np.ndarray, since_M: np.ndarray, seen: Seen, phase: Phase) -> np.ndarray:
        """Seconds of evidence that this row adds, were it certain."""
        credit_M = credit(waited_M, hurry=phase.effect >= 0.5)
        if seen.outage or phase.over or (phase.idle and phase.idle_s < 20.0) or (phase.grace and not phase.idle):
            return np.zeros(len(since_M))
        early_M = since_M < self._memory.number("moving_since_s") - max(2.0, 1.1 * seen.interval_s)
        # at slow scrapes all samples of the row in which a stall has arrived are of after it, and no clock is so far off
        counts = not phase.moving or (phase.arrived and phase.stalled and not phase.idle and phase.since_move_s >= clocks.OFF_S)
        early_M &= ~seen.silent_M  # who is silent says the same while all move: a hiccup of all is over in a moment
        return np.asarray(np.where(early_M | counts, 0.3 if phase.idle else 1.0, 0.0) * credit_M)

    def _share_M(self, strength: _Strength, since_M: np.ndarray, row: tuple[Phase, Seen], time_s: float) -> np.ndarray:
        """How clearly each machine leads; machines that were hit together lead together, alike, after a longer wait."""
        memory, config, (phase, seen) = self._memory, self.config, row
        share_M = distinctness(strength.total_M, None if phase.effect >= 0.25 or phase.idle else time_s - since_M)
        if share_M.any() or phase.effect < 0.5 or phase.idle:
            return share_M
        group_M = groups.hit_together(strength.total_M, since_M, groups.together_s(config.together_s, seen.interval_s), seen.silent_M)
        plain = group_M.any() and (strength.reached_M | seen.silent_M)[group_M].all()
        if plain and time_s - float(since_M[group_M].max()) > config.group_least_s:
            memory["in_group_M"] = np.maximum(memory["in_group_M"], group_M)
            alike_M = strength.total_M[group_M].min() / np.maximum(strength.total_M, 0.05)
            return np.where(group_M, config.group_pace * alike_M**2, 0.0)
        return share_M

    def _learn_row(self, row: _Row, barred_M: np.ndarray | None, gap_s: float) -> None:
        memory, phase = self._memory, row.phase
        phases.learn_common(memory, row.center_K, gap_s, phase)
        far_KM = self._far()
        odd_KM = np.maximum(memory["odd_KM"] - np.float32(2.0 * gap_s), np.float32(0.0))
        if far_KM.any():
            odd_KM = np.where(far_KM, memory["odd_KM"] + np.float32(gap_s), odd_KM)
        memory["odd_KM"] = odd_KM
        if phase.moving or phase.idle or phase.grace or phase.effect > 0.5:
            return
        barred_now_M = (memory["score_M"] > _SUSPICIOUS * self.config.patience_s) | (memory["grouped_s_M"] > _GROUPED_S)
        if barred_M is not None:
            barred_now_M |= barred_M
        moved_KM = odd_KM >= self.config.relearn_s
        withheld_KM = (far_KM & ~moved_KM) | barred_now_M
        taught_KM = ~withheld_KM
        if row.seen.usable_KM is not None:
            taught_KM &= ~np.isnan(row.scaled_KM)
        warmup_s = max(self.config.warmup_s, 4.0 * row.seen.interval_s)
        lesson = reference.Lesson(taught_KM, gap_s, warmup_s, moved_KM, self._stages.tainted_KM(withheld_KM))
        reference.learn(memory, self._traits, row.scaled_KM - row.center_K[:, None].astype(np.float32), lesson, self._names)
        self._slow_out_M = None
        self._stages.middles.clear()

    def _far(self) -> np.ndarray:
        """(K, M): too far from the peers to be learned, by every yardstick that counts for the machine."""
        memory, z, stages = self._memory, self.config.far_z, self._stages
        far_KM = reference.outside_KM(memory, "all_quick", z) | reference.outside_KM(memory, "all_slow", z)
        if len(stages.members) > 1:
            stage_KM = reference.outside_KM(memory, "stage_quick", z) | reference.outside_KM(memory, "stage_slow", z)
            far_KM = (far_KM | stages.large_M) & (stage_KM | stages.lonely_M | (self._traits.jams_K[:, None] & ~stages.large_M))
        return np.asarray(far_KM)


def _waited_M(strength: _Strength, seen: Seen) -> np.ndarray:
    """Seconds for which the news of this row stand, 0 where there is none."""
    waited_M = np.where(seen.news_M, seen.since_news_M, np.where(seen.silent_M, seen.gap_s, 0.0))
    return np.where(np.isnan(strength.told_s_M) | seen.silent_M, waited_M, strength.told_s_M)
