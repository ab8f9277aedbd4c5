"""How sure a verdict of telemetry is, so that of the verdicts told with 0.9 about nine in ten are right.

The raw strength of a verdict is what a reader of its evidence would count: independent families of metrics that agree, how much more
evidence there is than a verdict needs, and whether others turned odd at the same moment. A logistic curve through held-back verdicts
(Platt, 1999) makes it a share: `python bench/calibration.py CASES.json --fit` prints its two parameters.

The parameters below are set, not fitted: of 47 verdicts on our own hard recordings (seeds 14 to 95) 46 were right, and a single wrong one
fixes no slope. They tell 0.93 on average there, and leave a margin for clusters that are not our own simulator's.
"""

from __future__ import annotations

import math

__all__ = ["INTERCEPT", "SLOPE", "calibrated", "strength"]

SLOPE, INTERCEPT = 0.6, 2.0
_LEAST, _MOST = 0.3, 0.99


def strength(families: int, surplus: float, together: int) -> float:
    """families: how many independent ones testify (silence confirmed by the peers counts as two); surplus: score over threshold, less 1;
    together: how many other machines turned odd at about the same time."""
    return families - 1.0 + 0.5 * min(1.0, max(0.0, surplus)) - 1.5 * min(2, together)


def calibrated(raw: float) -> float:
    """Confidence of a raw strength, rising with it.

    >>> calibrated(0.0) < calibrated(1.0) < calibrated(3.0)
    True
    """
    return min(_MOST, max(_LEAST, 1.0 / (1.0 + math.exp(-(SLOPE * raw + INTERCEPT)))))
