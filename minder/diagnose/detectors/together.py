"""Machines that turned odd, or fell silent, within seconds of each other. M machines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.presence import PresenceNumbers

__all__ = ["TogetherNumbers", "hit_together", "together_s"]


@dataclass(frozen=True, slots=True)
class TogetherNumbers:
    """Section [together] of detector.toml: what each number is stands there."""

    intervals: float
    apart: float
    equal: float
    part: int


_N = numbers("together", TogetherNumbers)
_PRESENCE = numbers("presence", PresenceNumbers)


def together_s(least_s: float, interval_s: float) -> float:
    """Machines that turn odd within so many seconds of each other were hit together: two scrapes may lie between their samples.

    >>> together_s(10.0, 2.0), together_s(10.0, 15.0)
    (10.0, 30.0)
    """
    return max(least_s, _N.intervals * interval_s)


def hit_together(strength_M: np.ndarray, since_M: np.ndarray, within_s: float, silent_M: np.ndarray) -> np.ndarray:
    """Mask of two or more machines that turned odd within seconds of each other, about equally, and far more than any other;
    all False if there is no such group, or if it is more than a quarter of the job: of silent ones, so many that it is the monitoring."""
    found_M = np.zeros(len(strength_M), dtype=bool)
    quarter = len(strength_M) // _N.part
    most = max(quarter, int(_PRESENCE.lost * len(strength_M))) if silent_M.any() else quarter
    if most < 2:
        return found_M
    order = np.argsort(-strength_M, kind="stable")[: most + 1]
    strength, since = strength_M[order], since_M[order]
    for size in range(2, most + 1):
        apart = strength[size] <= _N.apart * strength[size - 1]
        few = size <= quarter or bool(silent_M[order[:size]].all())
        if few and apart and strength[size - 1] >= _N.equal * strength[0] and float(np.ptp(since[:size])) <= within_s:
            found_M[order[:size]] = True
            break
    return found_M
