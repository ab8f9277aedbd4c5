"""The earliest deviator is the culprit: a machine that fell, and that the others joined when the job came to a stop, no longer differs
from anybody, but it went first.

While the training runs as usual, the machine that plainly changes is remembered, with how far each of its metrics moved. If the
training stops while it is still there, it goes on testifying as long as it stands where it fell to. A jitter that had passed does not.
"""

from __future__ import annotations

import numpy as np

from minder.detectors.deviants import Deviants
from minder.detectors.memory import Memory
from minder.detectors.phases import Phase
from minder.detectors.traits import TraitTable

__all__ = ["FIELDS", "note_forerunners", "recall_forerunner"]

FIELDS: dict[str, tuple[str, float]] = {
    "fore_M": ("M", 0.0),  # how strongly the machine deviated while the training still ran
    "fore_since_M": ("M", -np.inf),  # when it began to
    "fore_s_M": ("M", -np.inf),  # when it was last seen to
    "fore_KM": ("KM", 0.0),  # how far its metrics had moved then, scaled
}
_FORGET_S = 30.0
_UNTIL_S, _UNTIL_INTERVALS = 4.0, 1.2  # at most so long before the effect
_LEAD_S, _LEAD_INTERVALS = 15.0, 1.5  # at least so long before the effect: less may be a clock that is off, or the order of samples
_LEAST = 0.5  # strength from which on a machine is remembered
_STILL = 0.7  # share of its move that must still be there
_ALONE = 2.0  # times the strength of any other that was remembered


def note_forerunners(memory: Memory, traits: TraitTable, deviants: Deviants, total_X: np.ndarray, when: tuple[float, float]) -> None:
    """A row in which the training ran as usual. when: (time of the row, seconds since the last one)."""
    time_s, gap_s = when
    fore_M = memory["fore_M"]
    if fore_M.any():
        fore_M = fore_M * np.exp(-gap_s / _FORGET_S)
    strong_X = deviants.reached_X & (total_X >= _LEAST)
    if strong_X.any():
        x = deviants.machines_X[strong_X]
        seen_s_M, since_M = memory["fore_s_M"].copy(), memory["fore_since_M"].copy()
        since_M[x] = np.where(time_s - seen_s_M[x] > _FORGET_S, time_s, since_M[x])
        seen_s_M[x] = time_s
        memory["fore_s_M"], memory["fore_since_M"] = seen_s_M, since_M
        strong_X &= total_X >= fore_M[deviants.machines_X]
        x = deviants.machines_X[strong_X]
        told_KX = (deviants.counted_KX[:, strong_X] > 0.5) & (traits.reaches_K1 | traits.halts_K1)
        fore_M, fore_KM = fore_M.copy(), memory["fore_KM"].copy()
        fore_M[x] = total_X[strong_X]
        fore_KM[:, x] = np.where(told_KX, deviants.moved_KX[:, strong_X], 0.0)
        memory["fore_KM"] = fore_KM
    memory["fore_M"] = fore_M


def recall_forerunner(memory: Memory, phase: Phase, interval_s: float) -> tuple[int, float] | None:
    """In a row in which the training stands: (who went first, how strongly), if one went alone and still stands where it fell to."""
    lead_s = max(_LEAD_S, _LEAD_INTERVALS * interval_s)
    led_M = phase.effect_since_s - memory["fore_since_M"] >= lead_s
    fresh_M = phase.effect_since_s - memory["fore_s_M"] <= _UNTIL_S + _UNTIL_INTERVALS * interval_s
    fore_M = np.where(led_M & fresh_M, memory["fore_M"], 0.0)
    first = int(np.argmax(fore_M)) if len(fore_M) else 0
    if not len(fore_M) or fore_M[first] < 0.5 * _LEAST or (np.delete(fore_M, first) * _ALONE > fore_M[first]).any():
        return None
    then_K = memory["fore_KM"][:, first]
    told_K = then_K != 0.0
    now_K = np.nan_to_num(memory["all_quick_smooth_KM"][:, first]) + phase.shift_K
    if not told_K.any() or (now_K[told_K] * np.sign(then_K[told_K]) < _STILL * np.abs(then_K[told_K])).any():
        forgotten_M = memory["fore_M"].copy()
        forgotten_M[first] = 0.0
        memory["fore_M"] = forgotten_M
        return None
    return first, float(fore_M[first])
