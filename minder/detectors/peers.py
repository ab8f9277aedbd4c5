"""Where a machine's peers stand: the median of the others, over all machines and within its pipeline stage.

Leave-one-out medians come from one sort: the median of the others depends only on which side of the middle a value lies.
K metrics, M machines; NaN is no data.
"""

from __future__ import annotations

import numpy as np

__all__ = ["median_of_all", "median_of_others"]


def median_of_others(values_KM: np.ndarray) -> np.ndarray:
    """(K, M): median of the other machines' values; NaN where there is no other.

    >>> median_of_others(np.array([[1.0, 2.0, 9.0]]))
    array([[5.5, 5. , 1.5]])
    """
    ordered_KM, count_K1 = _ordered(values_KM)
    others_K1 = count_K1 - 1
    low_K1, high_K1 = np.maximum((others_K1 - 1) // 2, 0), np.maximum(others_K1 // 2, 0)
    return np.asarray(0.5 * (_pick(ordered_KM, values_KM, low_K1) + _pick(ordered_KM, values_KM, high_K1)))


def median_of_all(values_KM: np.ndarray) -> np.ndarray:
    """(K,): median over machines; NaN where there is no data."""
    ordered_KM, count_K1 = _ordered(values_KM)
    low_K1, high_K1 = np.maximum((count_K1 - 1) // 2, 0), np.maximum(count_K1 // 2, 0)
    high_K1 = np.minimum(high_K1, values_KM.shape[1] - 1)
    middle_K1 = 0.5 * (np.take_along_axis(ordered_KM, low_K1, 1) + np.take_along_axis(ordered_KM, high_K1, 1))
    return np.asarray(middle_K1[:, 0])


def _ordered(values_KM: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """NaN sorts last; the count of values comes with it."""
    return np.sort(values_KM, axis=1), np.count_nonzero(~np.isnan(values_KM), axis=1)[:, None]


def _pick(ordered_KM: np.ndarray, values_KM: np.ndarray, place_K1: np.ndarray) -> np.ndarray:
    """The value at a place in the order of the others. A machine without data sees all as others (off by at most one place)."""
    last = values_KM.shape[1] - 1
    at_K1 = np.take_along_axis(ordered_KM, np.minimum(place_K1, last), 1)
    after_K1 = np.take_along_axis(ordered_KM, np.minimum(place_K1 + 1, last), 1) if last else np.full_like(at_K1, np.nan)
    return np.where(values_KM <= at_K1, after_K1, at_K1)
