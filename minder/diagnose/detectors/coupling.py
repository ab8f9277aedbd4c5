"""What is felt, and what is not: a deviation convicts if the job, or another family of metrics of the machine, shows it too.

The machines of a job wait for each other. One that computes or sends far less than it did holds all others up within a step or two, and all
that it does becomes less at once. A fall that no other machine feels may be a clock that is off: it convicts once it has lasted for longer
than that. A fall of one metric, while whatever else the machine does goes on, is that metric's own, and does not speak against the machine.
What began with a stop of all was felt: who does not come back from it holds the others up. What causes slowness (a clock rate, error and
congestion counters, a link's width) shows itself there first: it needs no such witness.
K metrics, M machines, X machines that stand out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minder.diagnose.detectors.memory import Memory
from minder.diagnose.detectors.phases import STOOD, Phase, all_stand
from minder.diagnose.detectors.presence import Seen
from minder.diagnose.detectors.traits import HIGH, LOW, UNIT, TraitTable

__all__ = ["FIELDS", "alone_for_s", "deep_KX", "doubts", "exchanges_X", "follow", "passed_M", "unfelt", "waits_s_X"]

FIELDS: dict[str, tuple[str, float]] = {
    "unfelt_s_KM": ("KM", 0.0),  # for how long a deep fall of the series has been felt by no other machine
    "unfelt_M": ("M", 0.0),  # 1: in the last row the machine spoke by such falls alone
    "felt_M": ("M", 0.0),  # 1: it has been down since a stop of all
    "alone": ("", 0.0),  # 1: unfelt_s_KM is not all 0
    "doubted": ("", 0.0),  # 1: doubted_s_KM is not all 0
    "doubted_s_KM": ("KM", 0.0),  # for how long all that its machine does besides has contradicted the series
}
_FELT = 0.25  # effect from which on the training is slowed
_WITHIN_S, _WITHIN_INTERVALS = 45.0, 3.0  # a step, a queue that runs empty, a time limit; and the scrapes that show it
_MOST, _FORGET_S = 4.0, 200.0  # times as long at most is remembered; a clock stays wrong when the machine stands with its peers again
_NOTHING_S = 0.1
_FOLLOWS = 0.25  # share of a fall that what else the machine does shows of it at least
_WITNESSES = 2  # other metrics that can contradict one
_BETWEEN = "rdma_throughput_bytes_per_second"
_CUT = 1.1  # scaled: by less, traffic of one kind falls alone where a lane is lost
_CLOCK_S = 120.0  # a clock is hardly farther off
_DOWN = -0.3  # scaled: who does more has come back
_LASTS_S = 10.0  # parts of a fall that show within so long of each other do not contradict one another
_REPORTED_S = 60.0  # doubt of a metric that lasts so long is reported


def deep_KX(traits: TraitTable, z_KX: np.ndarray, counted_KX: np.ndarray, moved_KX: np.ndarray) -> np.ndarray:
    """Mask (K, X): what the machine does has plainly become less, by its own change."""
    return np.asarray(traits.does_K1 & (z_KX < 0.0) & (counted_KX > 0.0) & (moved_KX < -traits.reach_K1))


def follow(memory: Memory, traits: TraitTable, x: np.ndarray, falls: tuple[np.ndarray, np.ndarray], when: tuple[Phase, Seen]) -> np.ndarray:
    """Mask (K, X) of what does not speak. To be asked once per row, also where no machine stands out (X = 0).

    falls: (deep falls, distances from the peers, scaled, NaN where nothing is known).
    """
    fallen_KX, apart_KX = falls
    phase, seen = when
    _follow_stops(memory, traits, phase, seen)
    if not len(x) and not memory.number("alone") and not memory.number("doubted"):
        return fallen_KX  # nothing stands out, and nothing has to be forgotten: most rows
    _follow_unfelt(memory, x, fallen_KX, phase, seen)
    if not unfelt(phase) and (phase.stalled or all_stand(memory, traits, phase)):
        return np.zeros(fallen_KX.shape, dtype=bool)  # there each kind of work stands, or goes on, by itself
    contradicted_KX = _contradicted_KX(traits, fallen_KX, apart_KX)
    _follow_doubts(memory, x, contradicted_KX, seen.gap_s)
    return contradicted_KX & (memory["doubted_s_KM"][:, x] >= _LASTS_S)


def exchanges_X(traits: TraitTable, moved_KX: np.ndarray, shift_K: np.ndarray) -> np.ndarray:
    """Mask (X,): works on as ever, and sends to machines of which nearly none sends, as no machine can: what it shows is of another time.

    moved_KX: its own changes; shift_K: everybody's. One part of its work that has ended, too, is of this time. Links inside a machine say
    nothing of that.
    """
    k = traits.place.get(_BETWEEN)
    if k is None or not shift_K[k] < -_CUT:
        return np.zeros(moved_KX.shape[1], dtype=bool)
    ended_K = traits.works_K1[:, 0] & (shift_K < STOOD)
    return np.asarray((moved_KX[ended_K] > _FOLLOWS * shift_K[ended_K, None]).all(axis=0))


def waits_s_X(memory: Memory, x: np.ndarray, fallen_X: np.ndarray, phase: Phase) -> np.ndarray:
    """(X,): how old the oddness of each machine must be to convict it: while others feel nothing, one that does less, or stands, waits for
    as long as a clock may be off: what a job-wide slowdown shows too early. fallen_X: who has fallen deeply.
    """
    waits_X = fallen_X & (memory["felt_M"][x] == 0.0) & unfelt(phase)
    return np.where(waits_X, _CLOCK_S, 0.0)


def unfelt(phase: Phase) -> bool:
    """Whether the training goes on as ever."""
    return phase.effect < _FELT


def passed_M(memory: Memory, waits_M: np.ndarray, phase: Phase) -> np.ndarray:
    """Mask (M,): what the machine showed is over, and no other has felt it. waits_M: who speaks by such falls alone in this row."""
    over_M = (memory["unfelt_M"] > 0.0) & ~waits_M
    memory["unfelt_M"] = np.asarray(waits_M, dtype=np.float64)
    return over_M if unfelt(phase) else np.zeros(len(waits_M), dtype=bool)


def alone_for_s(memory: Memory) -> np.ndarray:
    """(M,): for how long each machine has fallen deeply while no other felt it."""
    return np.asarray(memory["unfelt_s_KM"].max(axis=0, initial=0.0))


def doubts(memory: Memory, metrics: Sequence[str]) -> dict[str, str]:
    """Machine to one line about a metric that all else of it contradicts, for those whose exporter needs a look."""
    found: dict[str, str] = {}
    if not memory.number("doubted"):
        return found
    long_KM = memory["doubted_s_KM"] >= _REPORTED_S
    for m in np.flatnonzero(long_KM.any(axis=0)).tolist():
        names = dict.fromkeys(metrics[k].removesuffix(LOW).removesuffix(HIGH) for k in np.flatnonzero(long_KM[:, m]).tolist())
        found[memory.machines[m]] = f"{', '.join(names)} fell alone while all else that it does goes on: look at its exporter, or its unit"
    return found


def _follow_stops(memory: Memory, traits: TraitTable, phase: Phase, seen: Seen) -> None:
    """Who has been down since a stop of all, without a row at work. Who fell by itself long before has not fallen with the others."""
    stops = phase.stalled or phase.idle
    if not (stops or memory["felt_M"].any()):
        return
    works_K = traits.works_K1[:, 0] & traits.activity_K
    own_KM = memory["all_quick_smooth_KM"][works_K] + phase.shift_K[works_K, None]
    own_M = np.nansum(own_KM, axis=0) / np.maximum((~np.isnan(own_KM)).sum(axis=0), 1)
    felt_M = (memory["felt_M"] > 0.0) & (own_M < _DOWN)
    if stops:
        felt_M |= (own_M < STOOD) & (alone_for_s(memory) < _within_s(seen))
    memory["felt_M"] = felt_M.astype(np.float64)


def _follow_unfelt(memory: Memory, x: np.ndarray, fallen_KX: np.ndarray, phase: Phase, seen: Seen) -> None:
    """For how long each series has fallen deeply, alone."""
    unfelt_s_KM = memory["unfelt_s_KM"]
    if memory.number("alone"):
        kept_KX = unfelt_s_KM[:, x].copy()
        unfelt_s_KM *= np.float32(np.exp(-seen.gap_s / _FORGET_S))
        unfelt_s_KM[:, x] = np.where(fallen_KX, kept_KX, unfelt_s_KM[:, x])  # while it lasts it is the same
        unfelt_s_KM[unfelt_s_KM < _NOTHING_S] = 0.0
        memory.set_number("alone", float(unfelt_s_KM.any()))
    alone = not (phase.idle or phase.grace or not unfelt(phase) or seen.outage)
    if alone and fallen_KX.any():
        counts_X = seen.news_M[x] & ~seen.silent_M[x] & (memory["felt_M"][x] == 0.0)
        added_KX = np.where(fallen_KX & counts_X, np.float32(seen.gap_s), np.float32(0.0))
        unfelt_s_KM[:, x] = np.minimum(unfelt_s_KM[:, x] + added_KX, np.float32(_MOST * _within_s(seen)))
        memory.set_number("alone", 1.0)


def _within_s(seen: Seen) -> float:
    return max(_WITHIN_S, _WITHIN_INTERVALS * seen.interval_s)


def _follow_doubts(memory: Memory, x: np.ndarray, contradicted_KX: np.ndarray, gap_s: float) -> None:
    doubted_s_KM, any_now = memory["doubted_s_KM"], bool(contradicted_KX.any())
    if any_now or memory.number("doubted"):
        longer_KX = np.where(contradicted_KX, doubted_s_KM[:, x] + np.float32(gap_s), np.float32(0.0))
        doubted_s_KM[:] = 0.0
        doubted_s_KM[:, x] = longer_KX
        memory.set_number("doubted", float(any_now))


def _contradicted_KX(traits: TraitTable, fallen_KX: np.ndarray, apart_KX: np.ndarray) -> np.ndarray:
    """Mask (K, X): what else the machine does, device for device, hardly follows."""
    found_KX = np.zeros(fallen_KX.shape, dtype=bool)
    if not fallen_KX.any() and not (apart_KX[traits.falls_K1[:, 0]] < -UNIT).any():
        return found_KX
    for members, witnesses in traits.doing:
        told_KX = ~np.isnan(apart_KX[witnesses])
        sum_X, count_X = np.nansum(apart_KX[witnesses], axis=0), told_KX.sum(axis=0)
        for k in members:
            own_X = apart_KX[k]
            itself_X = ~np.isnan(own_X) if k in witnesses else np.zeros(len(own_X), dtype=bool)
            others_X = count_X - itself_X
            mean_X = (sum_X - np.where(itself_X, own_X, 0.0)) / np.maximum(others_X, 1)
            least = _CUT if traits.carries_K[k] else UNIT if traits.falls_K1[k, 0] else 0.0
            deep_X = fallen_KX[k] | traits.falls_K1[k]
            with np.errstate(invalid="ignore"):
                found_KX[k] = deep_X & (others_X >= _WITNESSES) & (own_X < -least) & (mean_X > _FOLLOWS * own_X)
    return found_KX
