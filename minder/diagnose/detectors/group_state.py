"""For how long each machine has stood apart, and by what. M machines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.state import State, per

__all__ = ["GroupState"]


@dataclass(slots=True)
class GroupState(State):
    grouped_s_M: np.ndarray = per("M")  # seconds for which the machine has stood apart, alone or with others, in a cause of slowness
    grouped_k_M: np.ndarray = per("M", np.nan)  # by that metric, as an index
    group_waited_s: float = 3.0  # since groups were last asked for; the first row asks
    in_group_M: np.ndarray = per("M")  # 1: what speaks against the machine speaks against others, too
