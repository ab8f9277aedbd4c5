"""Medians over machines where some values are missing: one sort, no warnings. Legend: K series, M machines."""

from __future__ import annotations

import numpy as np

__all__ = ["median_K1", "spread_K1"]


def median_K1(values_KM: np.ndarray) -> np.ndarray:
    """The median of each row's known values, NaN where none is.

    >>> median_K1(np.array([[3.0, np.nan, 1.0, 2.0], [np.nan] * 4]))[:, 0].tolist()
    [2.0, nan]
    """
    if values_KM.shape[1] == 0:
        return np.full((len(values_KM), 1), np.nan)
    sorted_KM = np.sort(values_KM, axis=1)  # NaN last
    known_K = (~np.isnan(values_KM)).sum(axis=1)
    rows = np.arange(len(values_KM))
    low_K = sorted_KM[rows, np.maximum((known_K - 1) // 2, 0)]
    high_K = sorted_KM[rows, np.minimum(known_K // 2, values_KM.shape[1] - 1)]
    middle_K = np.where(known_K % 2 == 1, low_K, (low_K + high_K) / 2.0)
    return np.asarray(np.where(known_K > 0, middle_K, np.nan)[:, None])


def spread_K1(values_KM: np.ndarray) -> np.ndarray:
    """1.4826 times the median distance from the median: a standard deviation that few outliers do not move."""
    return 1.4826 * median_K1(np.abs(values_KM - median_K1(values_KM)))
