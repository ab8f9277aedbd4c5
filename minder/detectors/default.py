"""The default detector: online, constant work and memory per grid row, one pass of array arithmetic over (metrics, machines).

A machine is anomalous as far as it differs from its peers more than it usually does, in several independent ways, for long enough,
while the training suffers and nobody else differs as much. What each word means has its own module: presence, reference, phases,
evidence. Legend: K metrics, M machines, F families.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minder.detectors import phases, presence, reference
from minder.detectors.evidence import distinctness, family_evidence, needed_z
from minder.detectors.explain import explain
from minder.detectors.memory import Memory
from minder.detectors.peers import median_of_all
from minder.detectors.phases import Phase
from minder.detectors.presence import Seen
from minder.detectors.reference import Measured
from minder.detectors.traits import HIGH, LOW, TraitTable
from minder.types import Scores, Window

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
    effect_boost: how much more evidence weighs while the training suffers since about then; eager_z: by how much smaller a deviation
    counts then. most_alone, most: the most families heard at once, without and with such an effect: a clock that is off by seconds
    looks like all of them for these seconds.
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


_FIELDS: dict[str, tuple[str, float]] = {
    "score_M": ("M", 0.0),
    "since_M": ("M", np.nan),
    "slow_waited_s": ("", 3.0),  # since the slow pace was last updated; the first row updates it
    "learn_waited_s": ("", 3.0),
    "odd_KM": ("KM", 0.0),  # seconds for which a series has been far off
}
_STEP_S = 3.0  # the slow pace and the learning take steps of this length or one row, if that is longer
_CALM = 0.35  # strength below which evidence leaks
_REACHING = ("halt", "activity", "power", "fabric", "congestion", "hardware", "job")


@dataclass(slots=True)
class _Row:
    """A scored row that waits to be learned."""

    center_K: np.ndarray
    scaled_KM: np.ndarray
    seen: Seen
    phase: Phase
    measured: dict[str, Measured]
    z_KM: np.ndarray


class DefaultDetector:
    """Detector (contract.py). `stages`: machine to pipeline stage(s); machines of one stage do the same work."""

    def __init__(self, stages: Mapping[str, object] | None = None, config: DefaultConfig | None = None) -> None:
        self.config = config or DefaultConfig()
        self._stages = dict(stages or {})
        names = {**reference.STANDING}
        for yardstick in ("all_quick", "all_slow", "stage_quick", "stage_slow"):
            names |= reference.fields(yardstick)
        self._memory = Memory({**_FIELDS, **presence.FIELDS, **phases.FIELDS, **names})
        self._traits = TraitTable(())
        self._groups: list[np.ndarray] = []
        self._pending: list[_Row] = []

    def score(self, window: Window) -> list[Scores]:
        metrics, values_TKM = _with_devices(window)
        self._follow(window.machines, metrics)
        self._pending = []
        rows = zip(window.times_T, values_TKM, window.present_TM, strict=True)
        return [self._score_row(float(time_s), values_KM, present_M) for time_s, values_KM, present_M in rows]

    def learn(self, window: Window, anomalous: frozenset[str]) -> None:
        barred_M = np.array([name in anomalous for name in self._memory.machines], dtype=bool)
        for row in self._pending:  # what is usual changes slowly: a few times a minute is often enough
            waited_s = min(self._memory.number("learn_waited_s"), _STEP_S) + row.seen.gap_s
            self._memory.set_number("learn_waited_s", 0.0 if waited_s >= _STEP_S else waited_s)
            if waited_s >= _STEP_S:
                self._learn_row(row, barred_M, waited_s)
        self._pending = []

    def state(self) -> dict[str, Any]:
        return {"detector": "default", "version": 1, **self._memory.state()}

    def load(self, state: Mapping[str, Any]) -> None:
        self._memory.load(state)
        self._pending = []
        self._follow(self._memory.machines, self._memory.metrics, fresh=True)

    def _follow(self, machines: Sequence[str], metrics: Sequence[str], fresh: bool = False) -> None:
        if not fresh and tuple(machines) == self._memory.machines and tuple(metrics) == self._memory.metrics:
            return
        self._memory.follow(machines, metrics)
        self._traits = TraitTable(metrics)
        by_stage: dict[object, list[int]] = {}
        for index, name in enumerate(machines):
            by_stage.setdefault(self._stages.get(name), []).append(index)
        self._groups = [np.array(members) for members in by_stage.values()]

    def _score_row(self, time_s: float, raw_KM: np.ndarray, present_M: np.ndarray) -> Scores:
        memory, traits = self._memory, self._traits
        seen = presence.observe_row(memory, traits, time_s, raw_KM, present_M)
        scaled_KM = traits.scale(raw_KM)
        scaled_KM[~seen.usable_KM] = np.nan
        scaled_KM = scaled_KM - memory["standing_KM"]
        center_K = median_of_all(scaled_KM)
        phase = phases.follow_phase(memory, traits, time_s, center_K, (seen.gap_s, seen.interval_s))
        measured = self._measure(scaled_KM, seen, phase)
        z_KM = _both_paces(measured, self._groups)
        full_KM, reached_M = self._counted(z_KM, measured["all_quick"].smooth_KM, phase)
        families_FM = family_evidence(traits, full_KM, z_KM < 0)
        strength_M = self._strength(families_FM, reached_M, seen, phase, time_s)
        self._accumulate(strength_M, seen, phase, time_s)
        self._pending.append(_Row(center_K, scaled_KM, seen, phase, measured, z_KM))
        quiet = phase.moving or phase.idle or self._is_outage(seen)
        return explain(memory, traits, (time_s, self.config.patience_s, quiet), scaled_KM, full_KM * np.sign(z_KM), (seen, phase))

    def _measure(self, scaled_KM: np.ndarray, seen: Seen, phase: Phase) -> dict[str, Measured]:
        """Every yardstick at two paces: the quick one speaks in seconds, the slow one hears what noise drowns."""
        config = self.config
        warmup_s = max(config.warmup_s, 4.0 * seen.interval_s)
        distances = {"all": reference.distances(scaled_KM, [np.arange(scaled_KM.shape[1])])}
        if len(self._groups) > 1:
            distances["stage"] = reference.distances(scaled_KM, self._groups)
        found = {}
        unsure = phase.idle or phase.moving or phase.grace  # a rest tells nothing of work
        waited_s = min(self._memory.number("slow_waited_s"), _STEP_S) + seen.gap_s
        paces = [("quick", max(config.smooth_s, 1.2 * seen.interval_s), seen.gap_s)]
        if waited_s >= _STEP_S:
            paces.append(("slow", max(config.slow_s, 5.0 * seen.interval_s), 0.0 if unsure else waited_s))
        self._memory.set_number("slow_waited_s", 0.0 if waited_s >= _STEP_S else waited_s)
        for pace, tau_s, passed_s in paces:
            context = reference.MeasureContext(float(1.0 - np.exp(-passed_s / tau_s)), phase.shift_K, warmup_s)
            for name, distance_KM in distances.items():
                found[f"{name}_{pace}"] = reference.measure(self._memory, self._traits, f"{name}_{pace}", distance_KM, context)
        for name, distance_KM in distances.items() if len(paces) == 1 else ():
            found[f"{name}_slow"] = reference.remembered(self._memory, f"{name}_slow", distance_KM)
        return found

    def _counted(self, z_KM: np.ndarray, smooth_KM: np.ndarray, phase: Phase) -> tuple[np.ndarray, np.ndarray]:
        """(evidence 0..1 of shape (K, M), machines that have plainly changed themselves)."""
        start = needed_z(z_KM.shape[1], int((self._traits.weight_K1 > 0).sum())) - self.config.eager_z * phase.lasting
        full_KM = np.clip((np.abs(z_KM) - start) / self.config.z_span, 0.0, 1.0)
        own_change_KM = np.abs(np.nan_to_num(smooth_KM) + phase.shift_K[:, None].astype(np.float32))
        stayed_KM = own_change_KM < 0.5 * np.abs(np.nan_to_num(smooth_KM))
        full_KM = full_KM * np.where(stayed_KM, 0.0 if phase.idle else self.config.stayed, 1.0)
        lonely = [members[0] for members in self._groups if len(members) == 1] if len(self._groups) > 1 else []
        if lonely:  # alone in its stage, it may be the one that an evaluation leaves at work: it must have changed itself, too
            changed_X = (full_KM[:, lonely] * ~stayed_KM[:, lonely] > 0.2).any(axis=0)
            full_KM[:, lonely] *= changed_X
        odd = np.flatnonzero(full_KM.any(axis=0))
        if len(odd):
            full_KM[:, odd] *= np.where(self._came_back(odd, smooth_KM[:, odd]), self.config.came_back, 1.0)
        reached_M = ((full_KM > 0.5) & ~stayed_KM & (own_change_KM > self._traits.reach_K1)).any(axis=0)
        return full_KM, reached_M

    def _came_back(self, odd: np.ndarray, smooth_KX: np.ndarray) -> np.ndarray:
        """(K, X): the odd machine now stands where its peers stand, so what was learned of it was odd: it ends, it does not begin."""
        standing_KM = self._memory["standing_KM"]
        returned_KX = np.zeros(smooth_KX.shape, dtype=bool)
        for members in self._groups if len(self._groups) > 1 else [np.arange(standing_KM.shape[1])]:
            inside_X = np.isin(odd, members)
            if len(members) > 2 and inside_X.any():
                apart_KX = standing_KM[:, odd[inside_X]] - np.median(standing_KM[:, members], axis=1, keepdims=True)
                small_KX = np.abs(apart_KX + smooth_KX[:, inside_X]) < 0.35 * np.abs(smooth_KX[:, inside_X])
                returned_KX[:, inside_X] = small_KX
        return returned_KX

    def _strength(self, families_FM: np.ndarray, reached_M: np.ndarray, seen: Seen, phase: Phase, time_s: float) -> np.ndarray:
        reaching = np.array([name in _REACHING for name in self._traits.families], dtype=bool)
        reaching_M = families_FM[reaching].sum(axis=0) if len(families_FM) else np.zeros(len(seen.silence_M))
        total_M = families_FM.sum(axis=0) if len(families_FM) else reaching_M
        suffers = phase.effect if not phase.idle else 0.0
        since_M = np.where(np.isnan(self._memory["since_M"]), time_s, self._memory["since_M"])
        joined_M = np.abs(since_M - phase.effect_since_s) < 240.0 if suffers > 0 else np.zeros(len(since_M), dtype=bool)
        boost_M = np.maximum(np.where(reached_M, 1.0, 0.3), suffers * np.where(joined_M, self.config.effect_boost, 1.0))
        limit_M = np.where(joined_M & (suffers > 0.5), self.config.most, self.config.most_alone)
        alone_M = np.where(joined_M, 0.5 * phase.lasting * total_M, 0.0)  # signs of the host alone: only if the training suffers since then
        total_M = np.minimum(np.where(reaching_M > 0.1, total_M * boost_M, alone_M), limit_M)
        return np.asarray(total_M + self._absence(seen, phase, time_s))

    def _absence(self, seen: Seen, phase: Phase, time_s: float) -> np.ndarray:
        """Silence speaks only with a second witness: the training suffers since about then. When many are silent it is the monitoring."""
        silent_M = self._silent(seen)
        if not silent_M.any() or self._is_outage(seen) or phase.effect < 0.5 or not phase.stalled:
            return np.zeros(len(silent_M))
        fell_silent_M = time_s - seen.silence_M
        later_M = phase.effect_since_s - fell_silent_M  # the peers stall when the machine is lost, or within a step or two
        together_M = (later_M > -2.0 * seen.interval_s - 5.0) & (later_M < 75.0 + seen.interval_s)
        return np.where(silent_M & together_M & (not phase.idle or phase.idle_s > 90.0), 2.0, 0.0)

    def _silent(self, seen: Seen) -> np.ndarray:
        return np.asarray(seen.silence_M > max(2.5 * seen.interval_s, 8.0))

    def _is_outage(self, seen: Seen) -> bool:
        silent_M = self._silent(seen)
        return bool(silent_M.sum() > max(1.0, 0.3 * len(silent_M)))

    def _accumulate(self, strength_M: np.ndarray, seen: Seen, phase: Phase, time_s: float) -> None:
        memory, config = self._memory, self.config
        score_M, since_M = memory["score_M"], memory["since_M"]
        silent_M = self._silent(seen)
        fresh_M = seen.news_KM.any(axis=0)
        credit_M = np.where(fresh_M, _credit(seen.since_news_M), np.where(silent_M, _credit(np.array(seen.gap_s)), 0.0))
        early_M = since_M < memory.number("moving_since_s") - max(2.0, 1.1 * seen.interval_s)
        pace_M = np.where(early_M | (not phase.moving), 0.0 if self._is_outage(seen) else 1.0, 0.0)
        if phase.idle:
            pace_M *= 0.0 if phase.idle_s < 20.0 else 0.3
        elif phase.grace:
            pace_M *= 0.0
        gained_M = pace_M * credit_M * strength_M**2 * distinctness(strength_M)
        calm_M = (strength_M < _CALM * (1.0 - 0.7 * phase.lasting)) & (fresh_M | silent_M)
        if not phase.moving:
            leak_s = config.leak_s * (1.0 + 7.0 * phase.lasting)
            score_M = np.where(calm_M, score_M * np.exp(-seen.gap_s / leak_s), score_M)
        memory["score_M"] = np.minimum(score_M + gained_M, 4.0 * config.patience_s)
        started_M = np.where(silent_M, time_s - seen.silence_M, time_s)
        since_M = np.where((strength_M >= 0.5 * _CALM) & np.isnan(since_M), started_M, since_M)
        memory["since_M"] = np.where((strength_M < 0.1) & (memory["score_M"] < 0.1 * config.patience_s), np.nan, since_M)

    def _learn_row(self, row: _Row, barred_M: np.ndarray, gap_s: float) -> None:
        memory, phase = self._memory, row.phase
        phases.learn_common(memory, row.center_K, gap_s, phase)
        far_KM = np.abs(row.z_KM) > self.config.far_z
        memory["odd_KM"] = np.where(far_KM, memory["odd_KM"] + gap_s, np.maximum(memory["odd_KM"] - 2.0 * gap_s, 0.0))
        frozen_KM = far_KM & (memory["odd_KM"] < self.config.relearn_s) | barred_M[None, :] | (memory["score_M"] > 30.0)[None, :]
        if phase.moving or phase.idle or phase.grace or phase.effect > 0.5:
            frozen_KM = np.ones_like(frozen_KM)
        reference.learn_standing(memory, row.scaled_KM - row.center_K[:, None].astype(np.float32), frozen_KM, gap_s)
        for name, measured in row.measured.items():
            reference.learn_spread(memory, name, measured, frozen_KM, gap_s)


def _credit(seconds_M: np.ndarray) -> np.ndarray:
    """Seconds of evidence in one sample that comes after so many seconds: a single sample never says as much as many do."""
    return np.asarray(np.minimum(seconds_M, 4.0) + 0.15 * np.clip(seconds_M - 4.0, 0.0, 26.0))


def _both_paces(measured: Mapping[str, Measured], groups: Sequence[np.ndarray]) -> np.ndarray:
    """The larger deviation of the two paces; the slow one only while the quick one still points the same way."""
    quick_KM, slow_KM = _agree(measured, "quick", groups), _agree(measured, "slow", groups)
    quick_size_KM, slow_size_KM = measured["all_quick"].smooth_KM, measured["all_slow"].smooth_KM
    lasts_KM = quick_size_KM * np.sign(slow_size_KM) > 0.4 * np.abs(slow_size_KM)
    return np.where(lasts_KM & (np.abs(slow_KM) > np.abs(quick_KM)), slow_KM, quick_KM)


def _agree(measured: Mapping[str, Measured], pace: str, groups: Sequence[np.ndarray]) -> np.ndarray:
    """A machine alone in its stage is compared with all; in a small stage both yardsticks must agree, and the smaller deviation
    counts; a large stage is yardstick enough."""
    z_KM = measured[f"all_{pace}"].z_KM
    stage = measured.get(f"stage_{pace}")
    if stage is None:
        return z_KM
    both_KM = np.where(np.sign(z_KM) == np.sign(stage.z_KM), np.where(np.abs(z_KM) < np.abs(stage.z_KM), z_KM, stage.z_KM), 0.0)
    for members in groups:
        if len(members) >= 5:
            both_KM[:, members] = stage.z_KM[:, members]
    return np.where(stage.known_KM, both_KM, z_KM)


def _with_devices(window: Window) -> tuple[tuple[str, ...], np.ndarray]:
    """Metrics and values of shape (T, K, M); the smallest and largest device of a machine join as metrics where there are devices."""
    names, parts = list(window.metrics), [window.values_TMK]
    for suffix, extreme_TMK in ((LOW, window.low_TMK), (HIGH, window.high_TMK)):
        if extreme_TMK is not None:
            names += [name + suffix for name in window.metrics]
            parts.append(extreme_TMK)
    joined_TMK = np.concatenate(parts, axis=2) if len(parts) > 1 else parts[0]
    with np.errstate(over="ignore"):  # what is too large for 32 bits becomes infinite: no data
        return tuple(names), np.ascontiguousarray(np.transpose(joined_TMK, (0, 2, 1)), dtype=np.float32)
