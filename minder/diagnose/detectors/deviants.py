"""The few machines that stand out in a row, and what counts of it.

Counted is what the newest sample confirms (a link that has healed no longer speaks), less where the machine only stayed behind while
its peers moved, and less where it merely came back to where its peers stand. K metrics, M machines, X machines that stand out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from minder.diagnose.detectors import contradiction, reference
from minder.diagnose.detectors.memory import Memory
from minder.diagnose.detectors.phases import Phase, jammed_K
from minder.diagnose.detectors.traits import TraitTable

__all__ = ["Counting", "Deviants", "Stages", "find_deviants"]

_LARGE = 5  # machines that make a stage yardstick enough
_CONFIRMS = 0.35  # share of the smoothed deviation that the newest sample must still show
_RETURNED = 0.35
_OWN = 0.5  # share of a plain change that a machine alone in its stage must have made itself when all others have all but ended
_HARMS = 0.25  # from so much on the training is slowed
_UNFELT = (
    1.3  # how much larger a plain change of what computes or carries traffic is while nothing is slowed: with short sequences it rests
)
_SHOWS = 0.5  # share of what is smoothed slowly that a sample must show to be counted in full


@dataclass(slots=True)
class Stages:
    """Machines that do the same work, as index arrays; `middles`: where each stage's machines usually stand, worked out when asked."""

    members: list[np.ndarray]
    large_M: np.ndarray
    lonely_M: np.ndarray
    middles: dict[int, np.ndarray] = field(default_factory=dict)

    @classmethod
    def of(cls, stage_of: Sequence[object]) -> Stages:
        by_stage: dict[object, list[int]] = {}
        for index, stage in enumerate(stage_of):
            by_stage.setdefault(stage, []).append(index)
        size_M = np.array([len(by_stage[stage]) for stage in stage_of], dtype=int)
        several = len(by_stage) > 1
        return cls([np.array(item) for item in by_stage.values()], several & (size_M >= _LARGE), several & (size_M == 1))

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


@dataclass(frozen=True, slots=True)
class Counting:
    """start: deviation from which on anything counts; span: from there to a full one; the weights of what merely stayed or came back;
    unsettled: a common move is so recent that a clock which is off still shows it; standstill_KM: how far machines differ while the
    training stands (standstill.py), None if it does not."""

    start: float
    span: float
    stayed: float
    came_back: float
    unsettled: bool = False
    standstill_KM: np.ndarray | None = None


@dataclass(slots=True)
class Deviants:
    """machines_X: who; z_KX: how far, in usual sizes; counted_KX: evidence 0..1; reached_X: it has plainly changed itself;
    newest_KX: the newest sample's own distance from its peers, scaled; moved_KX: how far it has moved itself, smoothed and scaled;
    shown_KX: 0..1, how much of what counts the newest sample shows: an echo of what has passed is not shown; jammed: the congestion
    counters of all machines have risen."""

    machines_X: np.ndarray
    z_KX: np.ndarray
    counted_KX: np.ndarray
    reached_X: np.ndarray
    newest_KX: np.ndarray
    moved_KX: np.ndarray
    shown_KX: np.ndarray
    jammed: bool = False

    def suffering_X(self, phase: Phase) -> np.ndarray:
        """(X,): 0..1, how much the training is slowed for a reason that may be this machine. A machine without a plain change of its
        own is not the reason in a jam of all, nor where work and traffic have only become more."""
        return np.where(phase.idle, 0.0, np.where(self.reached_X, phase.effect, 0.0 if self.jammed else phase.harm))


def find_deviants(
    memory: Memory,
    traits: TraitTable,
    stages: Stages,
    distances: Mapping[str, np.ndarray],
    phase: Phase,
    who: tuple[np.ndarray, Counting, float],
) -> Deviants:
    """who: (the machines that may stand out, how deviations count, seconds since the last row)."""
    x, counting, gap_s = who
    if not len(x):
        none_KX = np.zeros((len(memory.metrics), 0))
        contradiction.contradicted(memory, traits, x, (none_KX > 0.0, none_KX), (phase, gap_s))
        return Deviants(x, none_KX, none_KX, np.zeros(0, dtype=bool), none_KX, none_KX, none_KX)
    known_KX = ~np.isnan(distances["all"][:, x])
    large_X = stages.large_M[x] if "stage" in distances else np.zeros(len(x), dtype=bool)
    smooth_KX = memory["all_quick_smooth_KM"][:, x]
    own_KX, slow_KX, newest_KX = _apart(memory, distances, x, large_X)
    confirmed_KX = newest_KX * np.sign(own_KX) > _CONFIRMS * np.abs(own_KX)
    lasts_KX = own_KX * np.sign(slow_KX) > 0.4 * np.abs(slow_KX)
    if counting.unsettled:  # what the slow pace shows is of before the common move
        lasts_KX &= confirmed_KX
    shown_KX = _shown(newest_KX, slow_KX)
    jam_K = jammed_K(memory, traits, phase)
    which = (x, known_KX, large_X, jam_K, traits.jams_K)
    quick_KX = np.where(confirmed_KX, _agreed(memory, "quick", which, distances, phase), 0.0)
    slow_KX = np.where(lasts_KX, _agreed(memory, "slow", which, distances, phase), 0.0)
    echoed_KX = np.abs(slow_KX) > np.abs(quick_KX)
    z_KX = np.where(echoed_KX, slow_KX, quick_KX)
    shown_KX = np.where(echoed_KX, shown_KX, 1.0)
    if counting.standstill_KM is not None:
        still_KX = np.where(confirmed_KX, counting.standstill_KM[:, x], 0.0)
        plainer_KX = np.abs(still_KX) > np.abs(z_KX)
        z_KX, shown_KX = np.where(plainer_KX, still_KX, z_KX), np.where(plainer_KX, 1.0, shown_KX)
    counted_KX = np.clip((np.abs(z_KX) - counting.start) / counting.span, 0.0, 1.0)
    moved_KX = np.nan_to_num(smooth_KX) + phase.shift_K[:, None]
    # who has followed its peers a part of their way has not turned away from them either
    stayed_KX = moved_KX * np.sign(np.nan_to_num(smooth_KX)) < 0.5 * np.abs(np.nan_to_num(smooth_KX))
    # more work than its peers', as of uneven experts, is no fault while nothing is slowed; less work is a smaller share
    unfelt_K1 = traits.works_K1 & (phase.harm < _HARMS)
    harmless_K1 = traits.falls_K1 | unfelt_K1
    counted_KX *= ~(harmless_K1 & (z_KX > 0.0))
    counted_KX[traits.jams_K] *= z_KX[traits.jams_K] > 0.0  # who has less congestion than others is not what they wait for
    counted_KX *= np.where(stayed_KX, 0.0 if phase.idle else counting.stayed, 1.0)
    fallen_KX = traits.does_K1 & (z_KX < 0.0) & (counted_KX > 0.0) & (moved_KX < -traits.reach_K1) & ~stayed_KX
    counted_KX *= ~contradiction.contradicted(memory, traits, x, (fallen_KX, smooth_KX), (phase, gap_s))
    lonely_X = stages.lonely_M[x]
    if lonely_X.any():  # alone in its stage, it may be the one that an evaluation leaves at work: it must have changed itself, too
        least_K1 = _OWN * traits.reach_K1 if phase.stalled else np.float32(0.0)
        counted_KX *= ~lonely_X | ((counted_KX * ~stayed_KX > 0.2) & (np.abs(moved_KX) > least_K1)).any(axis=0)
    if counted_KX.any():
        counted_KX *= np.where(_came_back(memory, stages, x, own_KX), counting.came_back, 1.0)
    plain_K1 = np.where(unfelt_K1, _UNFELT * traits.reach_K1, traits.reach_K1)
    change_KX = np.abs(moved_KX)
    if jam_K.any():  # what all have lost in it is not this machine's change
        change_KX = np.minimum(change_KX, np.abs(np.nan_to_num(smooth_KX)))
    reached_X = (traits.reaching_KX(z_KX < 0) & (counted_KX > 0.5) & ~stayed_KX & (change_KX > plain_K1)).any(axis=0)
    return Deviants(x, z_KX, counted_KX, reached_X, newest_KX, moved_KX, shown_KX, bool(jam_K.any()))


def _apart(memory: Memory, distances: Mapping[str, np.ndarray], x: np.ndarray, large_X: np.ndarray) -> tuple[np.ndarray, ...]:
    """Three (K, X): how far from the yardstick that counts, scaled: smoothed quickly, smoothed slowly, and as it is now."""
    apart = (memory["all_quick_smooth_KM"][:, x], memory["all_slow_smooth_KM"][:, x], distances["all"][:, x])
    if not large_X.any():
        return apart
    inside = (memory["stage_quick_smooth_KM"][:, x], memory["stage_slow_smooth_KM"][:, x], distances["stage"][:, x])
    return tuple(np.where(large_X, stage_KX, all_KX) for stage_KX, all_KX in zip(inside, apart, strict=True))


def _shown(newest_KX: np.ndarray, slow_KX: np.ndarray) -> np.ndarray:
    """0..1: 1 where the newest sample is at least half as far off as what is smoothed slowly, 0 where it is not off to that side."""
    part_KX = newest_KX * np.sign(slow_KX) / (_SHOWS * np.maximum(np.abs(slow_KX), 1e-9))
    return np.asarray(np.nan_to_num(np.clip(part_KX, 0.0, 1.0)))


def _agreed(
    memory: Memory,
    pace: str,
    which: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    distances: Mapping[str, np.ndarray],
    phase: Phase,
) -> np.ndarray:
    """A machine alone in its stage is compared with all; in a small stage both yardsticks must agree, and the smaller deviation
    counts, but for congestion, which no stage has more of than another: a single noisy neighbour would hide it; a large stage is
    yardstick enough. In a jam of all, machines differ as they never do else: it is measured in that."""
    x, known_KX, large_X, jam_K, jams_K = which
    all_K = reference.apart_K(memory, f"all_{pace}", jam_K)
    z_KX = reference.deviation_KX(memory, f"all_{pace}", x, known_KX, phase.shift_K, all_K)
    if "stage" not in distances:
        return z_KX
    peers_KX = ~np.isnan(distances["stage"][:, x])
    stage_K = reference.apart_K(memory, f"stage_{pace}", jam_K)
    stage_KX = reference.deviation_KX(memory, f"stage_{pace}", x, peers_KX, phase.shift_K, stage_K)
    nearer_KX = np.where(np.abs(z_KX) < np.abs(stage_KX), z_KX, stage_KX)
    both_KX = np.where(np.sign(z_KX) == np.sign(stage_KX), nearer_KX, 0.0)
    both_KX[jams_K] = z_KX[jams_K]
    return np.where(peers_KX, np.where(large_X, stage_KX, both_KX), z_KX)


def _came_back(memory: Memory, stages: Stages, x: np.ndarray, smooth_KX: np.ndarray) -> np.ndarray:
    """(K, X): the odd machine now stands where its peers stand, so what was learned of it was odd: it ends, it does not begin."""
    standing_KM = memory["standing_KM"]
    returned_KX = np.zeros(smooth_KX.shape, dtype=bool)
    for index, members in enumerate(stages.members):
        inside_X = np.isin(x, members)
        if len(members) > 2 and inside_X.any():
            if index not in stages.middles:
                stages.middles[index] = np.median(standing_KM[:, members], axis=1, keepdims=True)
            apart_KX = standing_KM[:, x[inside_X]] - stages.middles[index]
            small_KX = np.abs(apart_KX + smooth_KX[:, inside_X]) < _RETURNED * np.abs(smooth_KX[:, inside_X])
            returned_KX[:, inside_X] = small_KX
    return returned_KX
