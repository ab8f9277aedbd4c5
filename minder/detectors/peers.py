"""Where a machine's peers stand: the median of the others, over all machines and within its pipeline stage.

Medians of the others come from one sort: the median of the others depends only on which side of the middle a value lies.
K metrics, M machines; NaN is no data.
"""

from __future__ import annotations

import numpy as np

__all__ = ["distance_from_others", "median_of_all"]


def distance_from_others(values_KM: np.ndarray) -> np.ndarray:
    """(K, M): how far each value lies outside the two middle values of the others; NaN where there is no other.

    With an even number of others one of the two middle values may be the sick one: the nearer of them is believed.

    >>> distance_from_others(np.array([[1.0, 2.0, 9.0]]))
    array([[-1.,  0.,  7.]])
    """
    ordered_KM, count_K1 = _ordered(values_KM)
    others_K1 = count_K1 - 1
    low_K1, high_K1 = np.maximum((others_K1 - 1) // 2, 0), np.maximum(others_K1 // 2, 0)
    low_KM, high_KM = _pick(ordered_KM, values_KM, low_K1), _pick(ordered_KM, values_KM, high_K1)
    nearest_KM = np.minimum(np.maximum(values_KM, low_KM), high_KM)
    return np.asarray(values_KM - nearest_KM)


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
