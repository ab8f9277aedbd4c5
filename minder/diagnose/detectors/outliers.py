"""The few machines that stand out in a row, and what counts of it.

Counted is what the newest sample confirms (a link that has healed no longer speaks), less where the machine only stayed behind while
its peers moved, and less where it merely came back to where its peers stand. K metrics, M machines, X machines that stand out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from minder.diagnose.detectors.baseline import Baseline, BaselineState, apart_K, deviation_KX
from minder.diagnose.detectors.clocks import ClocksNumbers
from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.phases import Phase, Phases
from minder.diagnose.detectors.stage import Stage

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Layout, Row

__all__ = ["Changed", "FindingOutliers", "Outliers", "OutliersNumbers", "PipelineStages"]


@dataclass(frozen=True, slots=True)
class OutliersNumbers:
    """Section [outliers] of detector.toml: what each number is stands there."""

    large: int
    scattered: float
    fewest: int
    confirms: float
    returned: float
    own: float
    harms: float
    unfelt: float
    shows: float
    lasts: float
    followed: float
    speaks: float
    plain: float


_N = numbers("outliers", OutliersNumbers)
_CLOCKS = numbers("clocks", ClocksNumbers)


@dataclass(slots=True)
class PipelineStages:
    """Machines that do the same work, as index arrays; `middles`: where each stage's machines usually stand, worked out when asked."""

    members: list[np.ndarray]
    large_M: np.ndarray
    lonely_M: np.ndarray
    middles: dict[int, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, stage_of: Sequence[object]) -> PipelineStages:
        by_stage: dict[object, list[int]] = {}
        for index, stage in enumerate(stage_of):
            by_stage.setdefault(stage, []).append(index)
        size_M = np.array([len(by_stage[stage]) for stage in stage_of], dtype=int)
        several = len(by_stage) > 1
        return cls([np.array(item) for item in by_stage.values()], several & (size_M >= _N.large), several & (size_M == 1))

    def tainted_KM(self, withheld_KM: np.ndarray) -> np.ndarray | None:
        """Series of machines in a small stage of which some machine's is withheld; None if there are none. In a stage of two the
        healthy one is as far from the faulty one as the faulty one from it, and would get used to it."""
        withheld_M = withheld_KM.any(axis=0) & ~self.large_M
        if len(self.members) < 2 or not withheld_M.any():
            return None
        tainted_KM = np.zeros(withheld_KM.shape, dtype=bool)
        for members in self.members:
            if withheld_M[members].any():
                tainted_KM[:, members] = withheld_KM[:, members].any(axis=1, keepdims=True)
        return tainted_KM


@dataclass(slots=True)
class Outliers:
    """machines_X: who; z_KX: how far, in usual sizes; counted_KX: evidence 0..1; reached_X: it has plainly changed itself;
    newest_KX: the newest sample's own distance from its peers, scaled; moved_KX: how far it has moved itself, smoothed and scaled;
    support_KX: 0..1, how much of what counts the newest sample shows: an echo of what has passed is not shown; congested: the congestion
    counters of all machines have risen.

    smooth_KX: how far from all others, smoothed quickly, scaled; own_KX: the same from the yardstick that counts; stayed_KX: its peers
    moved, and it did not; fallen_KX: what it does has plainly fallen; unfelt_K1: more of it is no fault now; congested_K: job-wide
    congestion; anew_K1: what machines do, where in some metric more of them stand out than one fault moves; back_KX: it has come to where
    its peers stand."""

    machines_X: np.ndarray
    z_KX: np.ndarray
    counted_KX: np.ndarray
    reached_X: np.ndarray
    newest_KX: np.ndarray
    moved_KX: np.ndarray
    support_KX: np.ndarray
    smooth_KX: np.ndarray
    own_KX: np.ndarray
    stayed_KX: np.ndarray
    fallen_KX: np.ndarray
    unfelt_K1: np.ndarray
    congested_K: np.ndarray
    anew_K1: np.ndarray | None = None
    back_KX: np.ndarray | None = None

    @classmethod
    def none(cls, metrics: int) -> Outliers:
        x, far_KX, any_KX, any_K1 = (
            np.zeros(0, dtype=np.intp),
            np.zeros((metrics, 0)),
            np.zeros((metrics, 0), bool),
            np.zeros((metrics, 1), bool),
        )
        said = (x, far_KX, far_KX, np.zeros(0, dtype=bool), far_KX, far_KX, far_KX)
        return cls(*said, far_KX, far_KX, any_KX, any_KX, any_K1, any_K1[:, 0])

    @property
    def congested(self) -> bool:
        return bool(self.congested_K.any())

    def harm_X(self, phase: Phase) -> np.ndarray:
        """(X,): 0..1, how much the training is slowed for a reason that may be this machine. A machine without a plain change of its
        own is not the reason during job-wide congestion, nor where work and traffic have only become more, nor for what it does where many
        differ anew."""
        harm_X = np.full(len(self.reached_X), 0.0 if self.congested else phase.harm)
        if self.anew_K1 is not None:
            harm_X *= (self.counted_KX * ~self.anew_K1 > 0.0).any(axis=0)
        return np.where(phase.idle, 0.0, np.where(self.reached_X, phase.effect, harm_X))


class FindingOutliers(Stage):
    """Who stands out, how far, and what of it counts: `row.outliers`. The least deviation that counts is smaller while the training is
    slowed."""

    phases: Phases
    baseline: Baseline

    def update(self, row: Row) -> None:
        layout, config = row.layout, self.config
        out_M = self.baseline.stands_out_M(layout.start_z - config.eager_z, layout.staged)
        if row.standstill_KM is not None:
            out_M = out_M | (np.abs(row.standstill_KM) > layout.start_z - config.eager_z).any(axis=0)
        x = np.flatnonzero(out_M)
        row.outliers = self._outliers(row, x) if len(x) else Outliers.none(len(row.raw_KM))

    def _outliers(self, row: Row, x: np.ndarray) -> Outliers:
        """x: the machines that may stand out."""
        baseline, phase, traits, distances = self.baseline.state, row.phase, row.traits, row.distances
        large_X = row.layout.stages.large_M[x] if "stage" in distances else np.zeros(len(x), dtype=bool)
        known_KX = ~np.isnan(distances["all"][:, x])
        smooth_KX = baseline.all_quick.smooth_KM[:, x]
        own_KX, slow_KX, newest_KX = _apart(baseline, distances, x, large_X)
        newest_KX = self._within_ends(row, x, newest_KX)
        confirmed_KX = newest_KX * np.sign(own_KX) > _N.confirms * np.abs(own_KX)
        lasts_KX = own_KX * np.sign(slow_KX) > _N.lasts * np.abs(slow_KX)
        if row.time_s - self.phases.state.moving_since_s <= _CLOCKS.off_s:  # what the slow pace shows is of before the common move
            lasts_KX &= confirmed_KX
        support_KX = _support(newest_KX, slow_KX)
        congested_K = self.phases.risen_congestion_K(traits, phase)
        scattered_K = self._scattered_K(row, x)
        which = (x, known_KX, large_X, congested_K | scattered_K, traits.congestion_K)
        quick_KX = np.where(confirmed_KX, _agreed(baseline, "quick", which, distances, phase), 0.0)
        slow_KX = np.where(lasts_KX, _agreed(baseline, "slow", which, distances, phase), 0.0)
        echoed_KX = np.abs(slow_KX) > np.abs(quick_KX)
        z_KX = np.where(echoed_KX, slow_KX, quick_KX)
        support_KX = np.where(echoed_KX, support_KX, 1.0)
        if row.standstill_KM is not None:
            still_KX = np.where(confirmed_KX, row.standstill_KM[:, x], 0.0)
            plainer_KX = np.abs(still_KX) > np.abs(z_KX)
            z_KX, support_KX = np.where(plainer_KX, still_KX, z_KX), np.where(plainer_KX, 1.0, support_KX)
        start = row.layout.start_z - self.config.eager_z * phase.sustained
        counted_KX = np.clip((np.abs(z_KX) - start) / self.config.z_span, 0.0, 1.0)
        moved_KX = np.nan_to_num(smooth_KX) + phase.shift_K[:, None]
        # who has followed its peers a part of their way has not turned away from them either
        apart_KX = np.nan_to_num(own_KX)
        stayed_KX = moved_KX * np.sign(apart_KX) < _N.followed * np.abs(apart_KX)
        # more work than its peers', as of uneven experts, is no fault while nothing is slowed; less work is a smaller share
        unfelt_K1 = traits.works_K1 & (phase.harm < _N.harms)
        harmless_K1 = traits.falls_K1 | unfelt_K1
        counted_KX *= ~(harmless_K1 & (z_KX > 0.0))
        if phase.usually_rests:  # samples that meet a burst of work, or miss it, say nothing of how fast it is
            counted_KX *= ~traits.does_K1
        counted_KX[traits.congestion_K] *= z_KX[traits.congestion_K] > 0.0  # who has less congestion than others is not what they wait for
        counted_KX *= np.where(stayed_KX, 0.0 if phase.idle else self.config.stayed, 1.0)
        fallen_KX = traits.does_K1 & (z_KX < 0.0) & (counted_KX > 0.0) & (moved_KX < -traits.reach_K1) & ~stayed_KX
        reached_X = np.zeros(len(x), dtype=bool)
        said = (x, z_KX, counted_KX, reached_X, newest_KX, moved_KX, support_KX)
        return Outliers(
            *said, smooth_KX, own_KX, stayed_KX, fallen_KX, unfelt_K1, congested_K, traits.does_K1 if scattered_K.any() else None
        )

    def _scattered_K(self, row: Row, x: np.ndarray) -> np.ndarray:
        """Mask (K,): more machines stand out in this metric than one fault moves, while the training is slowed: they differ as they never
        did, and by how much is seen now, not by what is usual."""
        most = max(_N.scattered * len(row.layout.machines), _N.fewest - 1)
        if row.phase.effect < _N.harms or len(x) <= most:
            return np.zeros(len(row.raw_KM), dtype=bool)
        least, of = row.layout.start_z - self.config.eager_z, self.baseline.state
        out_KX = np.abs(of.all_quick.smooth_KM[:, x]) > np.float32(least) * of.all_quick.unit_KM[:, x]
        return np.asarray(np.count_nonzero(out_KX, axis=1) > most)

    def _within_ends(self, row: Row, x: np.ndarray, newest_KX: np.ndarray) -> np.ndarray:
        """(K, X): no farther from what is expected than the gauge goes: one that stands at its end cannot follow its peers beyond it."""
        traits = row.traits
        place_KX = row.scaled_KM[:, x] + self.baseline.state.baseline_KM[:, x]
        return np.asarray(np.clip(newest_KX, np.minimum(place_KX - traits.last_K1, 0.0), np.maximum(place_KX - traits.first_K1, 0.0)))


class Changed(Stage):
    """Of what counts: less of who came back to its peers, or is alone in its stage; who has plainly changed itself."""

    baseline: BaselineState

    def update(self, row: Row) -> None:
        found, phase, traits, stages = row.outliers, row.phase, row.traits, row.layout.stages
        x = found.machines_X
        if not len(x):
            return
        lonely_X = stages.lonely_M[x]
        if lonely_X.any():  # alone in its stage, it may be the one that an evaluation leaves at work: it must have changed itself, too
            least_K1 = _N.own * traits.reach_K1 if phase.stalled else np.float32(0.0)
            plainly_KX = (found.counted_KX * ~found.stayed_KX > _N.speaks) & (np.abs(found.moved_KX) > least_K1)
            found.counted_KX *= ~lonely_X | plainly_KX.any(axis=0)
            # nor is it the fault of the one stage that works now, in a job whose stages work in turns, that the others wait
            found.counted_KX *= ~(lonely_X & traits.works_K1 & (found.z_KX > 0.0))
        found.back_KX = _came_back(self.baseline, row.layout, x, found.own_KX)
        found.counted_KX *= np.where(found.back_KX, self.config.came_back, 1.0)
        plain_K1 = np.where(found.unfelt_K1, _N.unfelt * traits.reach_K1, traits.reach_K1)
        change_KX = np.abs(found.moved_KX)
        if found.congested:  # what all have lost in it is not this machine's change
            change_KX = np.minimum(change_KX, np.abs(np.nan_to_num(found.smooth_KX)))
        reaching_KX = traits.reaching_KX(found.z_KX < 0)
        found.reached_X = (reaching_KX & (found.counted_KX > _N.plain) & ~found.stayed_KX & (change_KX > plain_K1)).any(axis=0)


def _apart(baseline: BaselineState, distances: Mapping[str, np.ndarray], x: np.ndarray, large_X: np.ndarray) -> tuple[np.ndarray, ...]:
    """Three (K, X): how far from the yardstick that counts, scaled: smoothed quickly, smoothed slowly, and as it is now."""
    apart = (baseline.all_quick.smooth_KM[:, x], baseline.all_slow.smooth_KM[:, x], distances["all"][:, x])
    if not large_X.any():
        return apart
    inside = (baseline.stage_quick.smooth_KM[:, x], baseline.stage_slow.smooth_KM[:, x], distances["stage"][:, x])
    return tuple(np.where(large_X, stage_KX, all_KX) for stage_KX, all_KX in zip(inside, apart, strict=True))


def _support(newest_KX: np.ndarray, slow_KX: np.ndarray) -> np.ndarray:
    """0..1: 1 where the newest sample is at least half as far off as what is smoothed slowly, 0 where it is not off to that side."""
    part_KX = newest_KX * np.sign(slow_KX) / (_N.shows * np.maximum(np.abs(slow_KX), 1e-9))
    return np.asarray(np.nan_to_num(np.clip(part_KX, 0.0, 1.0)))


def _agreed(
    baseline: BaselineState,
    pace: str,
    which: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    distances: Mapping[str, np.ndarray],
    phase: Phase,
) -> np.ndarray:
    """A machine alone in its stage is compared with all; in a small stage both yardsticks must agree, and the smaller deviation
    counts, but for congestion, which no stage has more of than another: a single noisy neighbour would hide it; a large stage is
    yardstick enough. Where machines differ as they never do else, as during job-wide congestion, it is measured in that."""
    x, known_KX, large_X, differ_K, congestion_K = which
    of_all = baseline.all_quick if pace == "quick" else baseline.all_slow
    z_KX = deviation_KX(of_all, x, known_KX, phase.shift_K, apart_K(of_all, differ_K))
    if "stage" not in distances:
        return z_KX
    peers_KX = ~np.isnan(distances["stage"][:, x])
    of_stage = baseline.stage_quick if pace == "quick" else baseline.stage_slow
    stage_KX = deviation_KX(of_stage, x, peers_KX, phase.shift_K, apart_K(of_stage, differ_K))
    nearer_KX = np.where(np.abs(z_KX) < np.abs(stage_KX), z_KX, stage_KX)
    both_KX = np.where(np.sign(z_KX) == np.sign(stage_KX), nearer_KX, 0.0)
    both_KX[congestion_K] = z_KX[congestion_K]
    return np.where(peers_KX, np.where(large_X, stage_KX, both_KX), z_KX)


def _came_back(baseline: BaselineState, layout: Layout, x: np.ndarray, smooth_KX: np.ndarray) -> np.ndarray:
    """(K, X): the odd machine now stands where its peers stand, so what was learned of it was odd: it ends, it does not begin. Of
    congestion, one that has no more than its peers has come nearer to them, however far."""
    baseline_KM, stages = baseline.baseline_KM, layout.stages
    least_K1 = np.where(layout.traits.congestion_K, 0.0, -np.inf)[:, None]
    returned_KX = np.zeros(smooth_KX.shape, dtype=bool)
    for index, members in enumerate(stages.members):
        inside_X = np.isin(x, members)
        if len(members) > 2 and inside_X.any():
            if index not in stages.middles:
                stages.middles[index] = np.median(baseline_KM[:, members], axis=1, keepdims=True)
            apart_KX = baseline_KM[:, x[inside_X]] - stages.middles[index]
            place_KX = np.maximum(apart_KX + smooth_KX[:, inside_X], least_K1)
            small_KX = np.abs(place_KX) < _N.returned * np.abs(smooth_KX[:, inside_X])
            returned_KX[:, inside_X] = small_KX
    return returned_KX
