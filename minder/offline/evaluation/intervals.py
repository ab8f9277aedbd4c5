"""How far a measured figure may be off: bootstrap over recordings, Wilson's interval of a share, the bound of a rare event's rate (pure).

Legend: N recordings, R resamples. A recording is the unit that is drawn: lines of one recording are not independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.offline.evaluation.scoring import Judged

__all__ = ["Figure", "bootstrap", "f1_figure", "f1_gain", "mean_figure", "poisson_lower", "poisson_upper", "wilson"]

_Z95 = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Figure:
    """A value with its 95 % interval; NaN where nothing was there to measure."""

    value: float
    low: float
    high: float


def bootstrap(judged: Sequence[Judged], resamples: int = 2000, seed: int = 0) -> dict[str, Figure]:
    """precision, recall, f1 and median_delay_s with percentile intervals (Efron 1979). Reproducible from the seed."""
    if not judged:
        return {name: Figure(math.nan, math.nan, math.nan) for name in ("precision", "recall", "f1", "median_delay_s")}
    flags_N3, delay_N = _arrays(judged)
    drawn_RN = np.random.default_rng(seed).integers(0, len(judged), (resamples, len(judged)))
    found = {}
    for k, name in enumerate(("precision", "recall", "f1")):
        value = float(_shares(flags_N3.sum(axis=0)[None])[0, k])
        found[name] = _figure(value, _shares(flags_N3[drawn_RN].sum(axis=1))[:, k])
    found["median_delay_s"] = _figure(_median(delay_N[None])[0], _median(delay_N[drawn_RN]))
    return found


def f1_figure(judged: Sequence[Judged], resamples: int = 2000, seed: int = 0) -> Figure:
    """F1, 0 where nothing was found; unknown only without any fault or name."""
    flags_N3 = _arrays(judged)[0]
    if not flags_N3[:, 1:].any():
        return Figure(math.nan, math.nan, math.nan)
    drawn_RN = np.random.default_rng(seed).integers(0, len(judged), (resamples, len(judged)))
    return _figure(float(_f1(flags_N3.sum(axis=0)[None])[0]), _f1(flags_N3[drawn_RN].sum(axis=1)))


def mean_figure(values: Sequence[float], resamples: int = 2000, seed: int = 0) -> Figure:
    """A mean with its percentile interval; unknown of nothing."""
    if not values:
        return Figure(math.nan, math.nan, math.nan)
    values_N = np.array(values, dtype=float)
    drawn_RN = np.random.default_rng(seed).integers(0, len(values_N), (resamples, len(values_N)))
    return _figure(float(values_N.mean()), values_N[drawn_RN].mean(axis=1))


def f1_gain(old: Sequence[Judged], new: Sequence[Judged], resamples: int = 2000, seed: int = 0) -> tuple[Figure, float]:
    """(F1 of new - F1 of old, share of resamples in which new is better), on the same recordings in the same order: paired.

    A draw counts half. A resample without any accusation or fault has F1 0. Raises ValueError if the recordings differ.
    """
    if [item.recording for item in old] != [item.recording for item in new]:
        raise ValueError("a paired comparison needs the same recordings in the same order")
    old_N3, new_N3 = _arrays(old)[0], _arrays(new)[0]
    drawn_RN = np.random.default_rng(seed).integers(0, len(old), (resamples, len(old)))
    gains_R = _f1(new_N3[drawn_RN].sum(axis=1)) - _f1(old_N3[drawn_RN].sum(axis=1))
    value = float(_f1(new_N3.sum(axis=0)[None])[0] - _f1(old_N3.sum(axis=0)[None])[0])
    return _figure(value, gains_R), float((gains_R > 0).mean() + 0.5 * (gains_R == 0).mean())


def wilson(part: int, whole: int) -> Figure:
    """A share with Wilson's score interval (1927), which stays honest where all or none of few agree.

    >>> round(wilson(20, 20).low, 3)
    0.839
    """
    if not whole:
        return Figure(math.nan, math.nan, math.nan)
    share, spread = part / whole, _Z95**2 / whole
    middle = (share + spread / 2.0) / (1.0 + spread)
    half = _Z95 / (1.0 + spread) * math.sqrt(share * (1.0 - share) / whole + spread / (4.0 * whole))
    return Figure(share, 0.0 if part == 0 else max(0.0, middle - half), 1.0 if part == whole else min(1.0, middle + half))


def poisson_upper(events: int, sure: float = 0.95) -> float:
    """The largest mean that this many events or fewer do not contradict (one-sided; 3.0 for none: the rule of three).

    >>> round(poisson_upper(0), 2), round(poisson_upper(2), 2)
    (3.0, 6.3)
    """
    low, high = float(events), 10.0 + 3.0 * events + 10.0 * math.sqrt(events)
    for _ in range(80):
        mean = (low + high) / 2.0
        term = total = math.exp(-mean)
        for k in range(1, events + 1):
            term *= mean / k
            total += term
        low, high = (mean, high) if total > 1.0 - sure else (low, mean)
    return high


def poisson_lower(events: int, sure: float) -> float:
    """The smallest mean that so many events do not contradict (one-sided, exact).

    >>> poisson_lower(0, 0.975), round(poisson_lower(5, 0.975), 2)
    (0.0, 1.62)
    """
    low, high = 0.0, float(events)
    for _ in range(60):
        mean = (low + high) / 2.0
        below = sum(math.exp(-mean + k * math.log(max(mean, 1e-300)) - math.lgamma(k + 1)) for k in range(events))
        low, high = (mean, high) if 1.0 - below < 1.0 - sure else (low, mean)
    return high if events else 0.0


def _arrays(judged: Sequence[Judged]) -> tuple[np.ndarray, np.ndarray]:
    """(found, accused, faulty) as (N, 3), and the delays of the found, NaN elsewhere."""
    flags = [(item.outcome == "found", item.outcome in ("found", "wrong"), item.fault is not None) for item in judged]
    delays = [item.delay_s if item.outcome == "found" and item.delay_s is not None else math.nan for item in judged]
    return np.array(flags, dtype=np.float64).reshape(-1, 3), np.array(delays, dtype=np.float64)


def _shares(counts_R3: np.ndarray) -> np.ndarray:
    """(precision, recall, F1) of (found, accused, faulty), NaN where nothing divides."""
    with np.errstate(invalid="ignore", divide="ignore"):
        precision_R, recall_R = counts_R3[:, 0] / counts_R3[:, 1], counts_R3[:, 0] / counts_R3[:, 2]
        f1_R = 2.0 * counts_R3[:, 0] / (counts_R3[:, 1] + counts_R3[:, 2])
    f1_R = np.where(np.isnan(precision_R) | np.isnan(recall_R) | (counts_R3[:, 0] == 0), np.nan, f1_R)
    return np.stack([precision_R, recall_R, f1_R], axis=1)


def _f1(counts_R3: np.ndarray) -> np.ndarray:
    return np.asarray(np.nan_to_num(_shares(counts_R3)[:, 2]))


def _median(delay_RN: np.ndarray) -> np.ndarray:
    known_R = np.isfinite(delay_RN).any(axis=1)
    found_R = np.full(len(delay_RN), np.nan)
    if known_R.any():
        found_R[known_R] = np.nanmedian(delay_RN[known_R], axis=1)
    return found_R


def _figure(value: float, draws_R: np.ndarray) -> Figure:
    known = draws_R[np.isfinite(draws_R)]
    if not len(known) or math.isnan(value):
        return Figure(float(value), math.nan, math.nan)
    low, high = np.percentile(known, [2.5, 97.5])
    return Figure(float(value), float(low), float(high))
