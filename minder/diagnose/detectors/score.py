"""Each machine's score, in seconds of evidence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.state import State, per

__all__ = ["ScoreNumbers", "ScoreState"]


@dataclass(frozen=True, slots=True)
class ScoreNumbers:
    """Section [score] of detector.toml: what each number is stands there."""

    calm: float
    suspicious: float


_N = numbers("score", ScoreNumbers)


@dataclass(slots=True)
class ScoreState(State):
    score_M: np.ndarray = per("M")
    since_M: np.ndarray = per("M", np.nan)  # since when the machine has been odd
