"""How far each machine is from where it stands usually, seen from its peers.

The yardstick is the median of the others ("all" machines, and those of the same pipeline "stage"). The machine's own standing offset, its
baseline, is learned and taken away; what is left is smoothed at two paces ("quick", "slow") and measured in its own usual size, wander
included: uneven experts and long sequences make a machine differ for a minute, and have done so before.

Work per row is a few passes over (K, M); deviations in usual sizes are only worked out for the machines that stand out (X).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.peers import Ordered, has_gaps
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import State, per
from minder.diagnose.detectors.traits import TraitTable

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Layout, Row

__all__ = [
    "Baseline",
    "BaselineNumbers",
    "BaselineState",
    "Distances",
    "Lesson",
    "Scale",
    "Yardstick",
    "apart_K",
    "deviation_KX",
    "outside_KM",
]


@dataclass(frozen=True, slots=True)
class BaselineNumbers:
    """Section [baseline] of detector.toml: what each number is stands there."""

    usual_s: float
    echo: float
    z_limit: float
    median_size: float
    one_sample_z: float
    step_s: float
    quick_intervals: float
    slow_intervals: float
    first_looks: float
    deviate: float
    bounded: float
    least_step: float


_N = numbers("baseline", BaselineNumbers)


@dataclass(slots=True)
class Yardstick(State):
    """One way to measure how far machines are from their peers."""

    smooth_KM: np.ndarray = per("KM", np.nan)  # smoothed distance from the peers
    spread_KM: np.ndarray = per("KM")  # its usual size
    unit_KM: np.ndarray = per("KM", np.inf)  # the size by which it is measured: never smaller than believable


@dataclass(slots=True)
class BaselineState(State):
    baseline_KM: np.ndarray = per("KM")  # own usual distance from the common level: taken away before machines are compared
    n_KM: np.ndarray = per("KM")  # seconds of data behind what is usual
    all_quick: Yardstick = field(default_factory=Yardstick)
    all_slow: Yardstick = field(default_factory=Yardstick)
    stage_quick: Yardstick = field(default_factory=Yardstick)
    stage_slow: Yardstick = field(default_factory=Yardstick)
    slow_waited_s: float = 3.0  # since the slow pace was last updated; the first row updates it

    def yardsticks(self, pace: str, staged: bool) -> list[Yardstick]:
        """Those in use, of the "quick" or the "slow" pace. staged: the job has several pipeline stages."""
        of_all, of_stage = (self.all_quick, self.stage_quick) if pace == "quick" else (self.all_slow, self.stage_slow)
        return [of_all, of_stage] if staged else [of_all]

    def forget_smooth(self, machines_M: np.ndarray, staged: bool) -> None:
        """These machines stand with their peers: what is smoothed of them must not echo that they did not."""
        for yardstick in (*self.yardsticks("quick", staged), *self.yardsticks("slow", staged)):
            smooth_KM = yardstick.smooth_KM.copy()
            smooth_KM[:, machines_M] *= np.float32(0.0)  # no data stays no data
            yardstick.smooth_KM = smooth_KM


@dataclass(frozen=True, slots=True)
class Lesson:
    """What may be learned from a row. taught_KM: there is data and nothing forbids to learn it; gap_s: seconds that it stands for.
    moved_KM: has been far for so long that it is the machine's new place.

    tainted_KM: a machine of the same small stage is not learned from, so how far they are from it says nothing of the others
    (None: nowhere).
    """

    taught_KM: np.ndarray
    gap_s: float
    warmup_s: float
    moved_KM: np.ndarray
    tainted_KM: np.ndarray | None = None


class Scale(Stage):
    """Each value on its metric's scale, less the machine's standing offset; the common level: `row.scaled_KM`, `row.center_K`."""

    baseline: BaselineState

    def update(self, row: Row) -> None:
        scaled_KM = row.traits.scale(row.raw_KM)
        if row.status.usable_KM is not None:
            np.copyto(scaled_KM, np.float32(np.nan), where=~row.status.usable_KM)  # a third of the time of an indexed assignment
        scaled_KM -= self.baseline.baseline_KM
        row.scaled_KM, row.ordered = scaled_KM, Ordered(scaled_KM, whole=row.status.usable_KM is None)
        row.center_K = row.ordered.median_K()


class Distances(Stage):
    """How far each machine is from its peers in this row: `row.distances`."""

    def update(self, row: Row) -> None:
        row.distances = distances(row.scaled_KM, row.ordered, row.layout.stages.members)


class Baseline(Stage):
    """Every yardstick at two paces: the quick one speaks in seconds, the slow one hears what noise drowns."""

    state: BaselineState

    def __init__(self) -> None:
        self.slow_out_M: np.ndarray | None = None  # who stands out at the slow pace, until it is updated

    def follow(self, layout: Layout) -> None:
        self.slow_out_M = None

    def update(self, row: Row) -> None:
        state, status, phase, config = self.state, row.status, row.phase, self.config
        unsure = phase.idle or phase.moving or phase.grace  # a rest says nothing of work
        waited_s = min(state.slow_waited_s, _N.step_s) + status.gap_s
        state.slow_waited_s = 0.0 if waited_s >= _N.step_s else waited_s
        quick = 1.0 - np.exp(-status.gap_s / max(config.smooth_s, _N.quick_intervals * status.interval_s))
        slow = 0.0 if unsure else 1.0 - np.exp(-waited_s / max(config.slow_s, _N.slow_intervals * status.interval_s))
        for name, distance_KM in row.distances.items():
            smooth(state.all_quick if name == "all" else state.stage_quick, distance_KM, float(quick))
            if waited_s >= _N.step_s:
                smooth(state.all_slow if name == "all" else state.stage_slow, distance_KM, float(slow))
        if waited_s >= _N.step_s:
            self.slow_out_M = None

    def stands_out_M(self, least: float, staged: bool) -> np.ndarray:
        """Mask (M,): farther than this from their peers in any metric, in usual sizes."""
        if self.slow_out_M is None:
            self.slow_out_M = _stands_out_M(self.state.yardsticks("slow", staged), least)
        return np.asarray(_stands_out_M(self.state.yardsticks("quick", staged), least) | self.slow_out_M)

    def learn_usual(self, traits: TraitTable, rest_KM: np.ndarray, lesson: Lesson, staged: bool) -> None:
        """What is usual follows. rest_KM: scaled value less its standing offset and the common level."""
        gap_s = np.float32(lesson.gap_s)
        taught_KM = lesson.taught_KM
        everything = bool(taught_KM.all())
        n_KM = self.state.n_KM + (gap_s if everything else gap_s * taught_KM)
        self.state.n_KM = n_KM
        known_KM = n_KM[:1, :1] if everything and n_KM.size and n_KM.min() == n_KM.max() else n_KM  # of all alike one is enough
        gain_KM = np.maximum(known_KM, gap_s)
        np.divide(gap_s, gain_KM, out=gain_KM)
        np.maximum(gain_KM, np.float32(1.0 - np.exp(-lesson.gap_s / _N.usual_s)), out=gain_KM)
        if not everything:
            gain_KM *= taught_KM
        bounded_KM = _bounded(self.state.all_quick, rest_KM, lesson.moved_KM)
        if has_gaps(bounded_KM):
            np.copyto(bounded_KM, np.float32(0.0), where=np.isnan(bounded_KM))
        step_KM = gain_KM * bounded_KM
        step_KM += self.state.baseline_KM
        self.state.baseline_KM = step_KM
        young_KM = 1.0 + np.float32(lesson.warmup_s) / np.maximum(known_KM, np.float32(1.0))
        unready_KM = known_KM < lesson.warmup_s
        early_KM = known_KM <= _N.first_looks * gap_s
        some_early = bool(early_KM.any())
        staged_KM = gain_KM if lesson.tainted_KM is None else np.where(lesson.tainted_KM, np.float32(0.0), gain_KM)
        state = self.state
        for yardstick in (*state.yardsticks("quick", staged), *state.yardsticks("slow", staged)):
            whole = not has_gaps(yardstick.smooth_KM)
            of_stage = yardstick is state.stage_quick or yardstick is state.stage_slow
            _learn_spread(yardstick, staged_KM if of_stage else gain_KM, early_KM if some_early else None, whole)
            _set_unit(yardstick, traits, young_KM, unready_KM, whole)
        self.slow_out_M = None


def distances(scaled_KM: np.ndarray, ordered: Ordered, groups: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    """By yardstick: distance of each machine from the middle of the others; NaN without data, and for a machine alone in its stage."""
    found = {"all": ordered.distance_KM()}
    if len(groups) > 1:
        found["stage"] = np.full_like(scaled_KM, np.nan)
        for members in groups:
            if len(members) > 1:
                found["stage"][:, members] = Ordered(scaled_KM[:, members], ordered.whole).distance_KM()
    return found


def smooth(yardstick: Yardstick, distance_KM: np.ndarray, gain: float) -> None:
    """Follow the distance; where there is no data the last smoothed value stays."""
    smooth_KM = yardstick.smooth_KM
    step_KM = distance_KM - smooth_KM
    gaps = has_gaps(step_KM)
    step_KM *= np.float32(gain)
    step_KM += smooth_KM
    if gaps:  # no data, or none before
        np.copyto(step_KM, smooth_KM, where=np.isnan(step_KM))
        np.copyto(step_KM, distance_KM, where=np.isnan(step_KM))
    yardstick.smooth_KM = step_KM


def outside_KM(yardstick: Yardstick, z: float) -> np.ndarray:
    """Where the smoothed distance exceeds z of its units (a common move, which only enlarges them, left aside)."""
    return np.asarray(np.abs(yardstick.smooth_KM) > np.float32(z) * yardstick.unit_KM)


def _stands_out_M(yardsticks: Sequence[Yardstick], z: float) -> np.ndarray:
    """Machines that are farther than z from their peers in any metric, by any of these yardsticks."""
    found_M = np.zeros(yardsticks[0].smooth_KM.shape[1], dtype=bool)
    for yardstick in yardsticks:
        out_KM = outside_KM(yardstick, z)
        if out_KM.any():
            found_M |= out_KM.any(axis=0)
    return found_M


def apart_K(yardstick: Yardstick, metrics_K: np.ndarray) -> np.ndarray:
    """How far apart all machines are now in these metrics, as one usual size: 1.48 medians of the smoothed distance; 0 in the others."""
    found_K = np.zeros(len(metrics_K))
    for k in np.flatnonzero(metrics_K).tolist():
        size_M = np.abs(yardstick.smooth_KM[k])
        known_M = size_M[~np.isnan(size_M)]
        found_K[k] = _N.median_size * float(np.median(known_M)) if len(known_M) else 0.0
    return found_K


def deviation_KX(
    yardstick: Yardstick, machines_X: np.ndarray, known_KX: np.ndarray, shift_K: np.ndarray, apart_K: np.ndarray | float = 0.0
) -> np.ndarray:
    """Smoothed distance of these machines in units of its usual size; 0 where nothing is known yet. shift_K: the common move; apart_K:
    how far apart machines are now, where that counts beside what is usual."""
    echo_K1 = ((_N.echo * shift_K) ** 2 + np.square(apart_K))[:, None]
    smooth_KX = yardstick.smooth_KM[:, machines_X].astype(np.float64)
    z_KX = smooth_KX / np.sqrt(yardstick.unit_KM[:, machines_X].astype(np.float64) ** 2 + echo_K1)
    return np.where(known_KX & ~np.isnan(z_KX), np.clip(z_KX, -_N.z_limit, _N.z_limit), 0.0)


def _bounded(yardstick: Yardstick, rest_KM: np.ndarray, moved_KM: np.ndarray) -> np.ndarray:
    """No single sample moves a machine's usual place far: its clock may be early, and all others follow in the next row."""
    limit_KM = np.float32(_N.one_sample_z) * yardstick.unit_KM
    np.copyto(limit_KM, np.float32(np.inf), where=moved_KM)
    bounded_KM = np.minimum(rest_KM, limit_KM)
    np.negative(limit_KM, out=limit_KM)
    return np.asarray(np.maximum(bounded_KM, limit_KM, out=bounded_KM))  # half the time of a clip


def _learn_spread(yardstick: Yardstick, gain_KM: np.ndarray, early_KM: np.ndarray | None, whole: bool) -> None:
    """A far value moves the usual size by a bounded step only, except in the first looks. whole: no smoothed distance is unknown."""
    spread_KM = yardstick.spread_KM
    size_KM = np.abs(yardstick.smooth_KM)
    size_KM *= np.float32(_N.deviate)  # a normal deviate's mean size is 0.8 of its standard deviation
    if not whole:
        np.copyto(size_KM, spread_KM, where=np.isnan(size_KM))
    bounded_KM = np.float32(_N.bounded) * spread_KM
    bounded_KM += np.float32(_N.least_step)
    np.minimum(size_KM, bounded_KM, out=bounded_KM)
    if early_KM is not None:
        bounded_KM = np.where(early_KM, size_KM, bounded_KM)
    bounded_KM -= spread_KM
    bounded_KM *= gain_KM
    bounded_KM += spread_KM
    yardstick.spread_KM = bounded_KM


def _set_unit(yardstick: Yardstick, traits: TraitTable, young_KM: np.ndarray, unready_KM: np.ndarray, whole: bool) -> None:
    """The usual size, but no less than the mean one of all machines (some have only been calm so far) and than the metric's floor;
    larger while little is known, and infinite while nothing is."""
    spread_KM = yardstick.spread_KM
    some_unready = bool(unready_KM.any())
    if some_unready or not whole:
        known_KM = ~unready_KM & ~np.isnan(yardstick.smooth_KM)
        count_K1 = np.maximum(known_KM.sum(axis=1, keepdims=True), 1).astype(np.float32)
        unit_KM = np.maximum(spread_KM, (spread_KM * known_KM).sum(axis=1, keepdims=True) / count_K1)
    else:
        unit_KM = np.maximum(spread_KM, spread_KM.sum(axis=1, keepdims=True) / np.float32(max(spread_KM.shape[1], 1)))
    unit_KM *= young_KM
    np.maximum(unit_KM, traits.floor_K1, out=unit_KM)
    if some_unready:
        np.copyto(unit_KM, np.float32(np.inf), where=unready_KM)
    yardstick.unit_KM = unit_KM
