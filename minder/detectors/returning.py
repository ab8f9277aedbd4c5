"""Who has not come back yet: a job that stood as a whole, as in a restart, is taken up by its machines one by one, minutes apart.

Whoever comes last stands while the others work, or is still silent, and has changed nothing by itself: it stood when all stood. It is
given time. After a short rest, such as a checkpoint, all go on together, and who does not is odd. K activity metrics, M machines.
"""

from __future__ import annotations

from math import isnan

import numpy as np

from minder.detectors.memory import Memory
from minder.detectors.phases import STOOD, Phase
from minder.detectors.presence import Seen
from minder.detectors.traits import TraitTable

__all__ = ["FIELDS", "not_back_M"]

FIELDS: dict[str, tuple[str, float]] = {
    "waits_M": ("M", 0.0),  # 1: stood, or was silent, when all stood, and has not worked since
    "works_since_M": ("M", np.nan),  # of who waited: since when it has been seen at work
    "all_stand_since_s": ("", np.nan),
}
_LONG_S = 40.0  # a checkpoint is shorter
_TAKES_S = 150.0  # from the first one at work to the last
_AT_WORK = -0.25  # scaled: whose activity is no lower on average works
_SURE_S, _SURE_INTERVALS = 5.0, 1.0  # and for so long: what one sample shows may be noise
_MOST = 0.5  # share of the machines that are heard: if more stand, the job does


def not_back_M(memory: Memory, traits: TraitTable, scaled_KM: np.ndarray, seen: Seen, phase: Phase, time_s: float) -> np.ndarray | None:
    """Mask (M,) of the machines that are still given time to come back; None where there is none. To be asked once per row."""
    since_s = memory.number("all_stand_since_s")
    if isnan(since_s) and not (phase.stalled or phase.idle):
        return None
    level_KM = scaled_KM[traits.activity_K] - memory["common_K"][traits.activity_K][:, None]
    heard_M = ~np.isnan(level_KM).all(axis=0) & ~seen.silent_M
    if not heard_M.any():
        return None  # all is silent: nothing is known, and nothing forgotten
    level_M = np.nan_to_num(level_KM).sum(axis=0) / np.maximum(1, (~np.isnan(level_KM)).sum(axis=0))
    stands_M = heard_M & (level_M < STOOD)
    all_stand = bool(np.count_nonzero(stands_M) > _MOST * np.count_nonzero(heard_M))
    if isnan(since_s):
        if not all_stand:
            return None
        memory.set_number("all_stand_since_s", time_s)
        since_s = time_s
    works_M = heard_M & (level_M > _AT_WORK)
    began_M = works_M & np.isnan(memory["works_since_M"]) & (memory["waits_M"] > 0.0)
    works_since_M = np.where(stands_M, np.nan, np.where(began_M, time_s, memory["works_since_M"]))
    back_M = time_s - works_since_M >= max(_SURE_S, _SURE_INTERVALS * seen.interval_s)
    waits_M = ((memory["waits_M"] > 0.0) | (all_stand & ~works_M)) & ~back_M
    first_s = float(np.nanmin(works_since_M)) if (works_since_M == works_since_M).any() else time_s
    over = not all_stand and first_s - since_s < _LONG_S
    if over or not waits_M.any() or (back_M.any() and time_s - first_s > _TAKES_S):
        memory.forget(FIELDS)
        return None
    memory["works_since_M"], memory["waits_M"] = works_since_M, waits_M.astype(np.float64)
    return waits_M if back_M.any() and first_s - since_s >= _LONG_S else None
