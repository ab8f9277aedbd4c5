"""Is a confidence of 0.9 right nine times in ten? Of all recordings in which a machine was accused (pure)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from minder.offline.evaluation.intervals import Figure, wilson
from minder.offline.evaluation.scoring import Judged

__all__ = ["Bin", "Reliability", "measure_reliability"]

_EDGES = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)


@dataclass(frozen=True, slots=True)
class Bin:
    """Verdicts with a confidence from low (inclusive) to high: how many, how sure on average, and the share that was right."""

    low: float
    high: float
    count: int
    confidence: float
    right: Figure


@dataclass(frozen=True, slots=True)
class Reliability:
    """error: expected calibration error (Naeini and others 2015), the mean distance of said and true, weighted by count; brier: Brier
    (1950). NaN without verdicts."""

    bins: tuple[Bin, ...]
    error: float
    brier: float
    count: int


def measure_reliability(judged: Sequence[Judged]) -> Reliability:
    """Confidence of each recording's first accusation against whether the recording was judged right."""
    pairs = [(item.confidence, item.outcome == "found") for item in judged if item.confidence is not None]
    bins = []
    for low, high in pairwise(_EDGES):
        inside = [(said, right) for said, right in pairs if low <= said < high or (high == 1.0 and said >= 1.0)]
        if inside:
            mean = sum(said for said, _ in inside) / len(inside)
            bins.append(Bin(low, high, len(inside), mean, wilson(sum(right for _, right in inside), len(inside))))
    if not pairs:
        return Reliability((), math.nan, math.nan, 0)
    error = sum(item.count * abs(item.confidence - item.right.value) for item in bins) / len(pairs)
    brier = sum((said - right) ** 2 for said, right in pairs) / len(pairs)
    return Reliability(tuple(bins), error, brier, len(pairs))
