"""Medians over machines where some values are missing, of no more machines than a median needs. Legend: K series, M machines."""

from __future__ import annotations

import numpy as np

__all__ = ["MOST", "few_of", "median_K1", "spread_K1"]

MOST = 1024  # machines that a median is taken of: of more, the median of every n-th is off by 5 % of their spread


def few_of(values_KM: np.ndarray) -> np.ndarray:
    """Every n-th machine, so that MOST are left at most; always the same ones.

    >>> few_of(np.zeros((2, 6000))).shape
    (2, 1000)
    """
    step = -(-values_KM.shape[1] // MOST)
    return values_KM[:, ::step] if step > 1 else values_KM


def median_K1(values_KM: np.ndarray) -> np.ndarray:
    """The median of each row's known values, NaN where none is.

    >>> median_K1(np.array([[3.0, np.nan, 1.0, 2.0], [np.nan] * 4]))[:, 0].tolist()
    [2.0, nan]
    """
    values_KM = few_of(values_KM)
    out_K = np.full(len(values_KM), np.nan, dtype=values_KM.dtype)
    known_K = values_KM.shape[1] - np.isnan(values_KM).sum(axis=1)
    for count in set(known_K.tolist()) - {0}:  # mostly one: all machines are known, and rows of one count need one pass
        rows = np.flatnonzero(known_K == count)
        low, high = (count - 1) // 2, count // 2
        parted = np.partition(values_KM[rows], high, axis=1)  # NaN last
        middle = parted[:, high]
        out_K[rows] = middle if low == high else (parted[:, :high].max(axis=1) + middle) / 2.0
    return out_K[:, None]


def spread_K1(values_KM: np.ndarray) -> np.ndarray:
    """1.4826 times the median distance from the median: a standard deviation that few outliers do not move."""
    values_KM = few_of(values_KM)
    return np.asarray(1.4826 * median_K1(np.abs(values_KM - median_K1(values_KM))))
