"""Each machine's score, in seconds of evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.state import State, per

__all__ = ["CALM", "SUSPICIOUS", "ScoreState"]

CALM = 0.35  # strength below which evidence leaks
SUSPICIOUS = 1 / 3  # of what convicts: from there on a machine teaches nothing of what is usual


@dataclass(slots=True)
class ScoreState(State):
    score_M: np.ndarray = per("M")
    since_M: np.ndarray = per("M", np.nan)  # since when the machine has been odd
