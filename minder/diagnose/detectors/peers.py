"""Where a machine's peers stand: the median of the others, over all machines and within its pipeline stage.

Medians of the others come from one sort: the median of the others depends only on which side of the middle a value lies.
K metrics, M machines; NaN is no data.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Ordered", "has_gaps", "median_known"]


def has_gaps(values_KM: np.ndarray) -> bool:
    """Whether any value is NaN: the largest of all is NaN then, and it is found three times faster than a mask of them.

    >>> has_gaps(np.array([1.0, np.nan])), has_gaps(np.array([1.0, np.inf, -np.inf])), has_gaps(np.zeros((3, 0)))
    (True, False, False)
    """
    largest = values_KM.max(initial=-np.inf)
    return bool(largest != largest)


def median_known(values_N: np.ndarray) -> float:
    """The median of what is not NaN, NaN if nothing is left; numpy's own takes three times as long.

    >>> median_known(np.array([4.0, np.nan, 1.0, 2.0])), median_known(np.array([np.nan]))
    (2.0, nan)
    """
    known_N = values_N[~np.isnan(values_N)] if has_gaps(values_N) else values_N
    middle = len(known_N) // 2
    if not len(known_N):
        return float("nan")
    ordered_N = np.partition(known_N, middle)
    return float(ordered_N[middle] if len(known_N) % 2 else 0.5 * (ordered_N[:middle].max() + ordered_N[middle]))


class Ordered:
    """(K, M) values put into order once, for every median that is asked of them.

    As long as nothing is missing, which is usual, the one or two values in the middle are all that anybody asks for: they are found
    without sorting the rest.
    """

    def __init__(self, values_KM: np.ndarray, whole: bool = False) -> None:
        """whole: known that no metric is missing of some machines only."""
        self.values_KM = values_KM
        metrics, machines = values_KM.shape
        self._rows_K = np.arange(metrics)
        self._count_K: np.ndarray | int = machines
        self.whole = whole or not machines or not _has_some(values_KM)
        if not self.whole:
            self._ordered_KM = np.sort(values_KM, axis=1)  # NaN sorts last
            self._count_K = machines - np.isnan(values_KM).sum(axis=1)
        elif machines:  # a metric that no machine has is NaN at every place, too
            middle = (machines - 1) // 2
            self._ordered_KM = np.partition(values_KM, middle, axis=1)
            if machines // 2 > middle:
                self._ordered_KM[:, middle + 1] = self._ordered_KM[:, middle + 1 :].min(axis=1)

    def median_K(self) -> np.ndarray:
        """(K,): median over machines; NaN where there is no data."""
        if not self.values_KM.shape[1]:
            return np.full(self.values_KM.shape[0], np.nan)
        return np.asarray(0.5 * (self._at((self._count_K - 1) // 2) + self._at(self._count_K // 2)))

    def distance_KM(self) -> np.ndarray:
        """How far each value lies outside the two middle values of the others; NaN where there is no other.

        With an even number of others one of the two middle values may be the faulty one: the nearer of them is believed. For a value
        below the middle that is the lower of the two, `below`; for one above it the upper one, `above`.
        """
        others_K = self._count_K - 1
        below_K1 = self._at(_at_least_0((others_K - 1) // 2) + 1)[:, None]
        above_K1 = self._at(_at_least_0(others_K // 2))[:, None]
        return _outside(self.values_KM, below_K1, above_K1)

    def _at(self, place_K: np.ndarray | int) -> np.ndarray:
        """The value at a place in the order; NaN beyond its end."""
        last = self.values_KM.shape[1] - 1
        if isinstance(place_K, int):
            return self._ordered_KM[:, place_K] if place_K <= last else np.full(len(self._rows_K), np.float32(np.nan))
        found_K = self._ordered_KM[self._rows_K, np.minimum(np.maximum(place_K, 0), last)]
        if last < 1:
            found_K[place_K > last] = np.nan
        return np.asarray(found_K)


def _outside(values_KM: np.ndarray, below_K1: np.ndarray, above_K1: np.ndarray) -> np.ndarray:
    """Distance from `below` for what is no higher than `above`, else from `above`; of the two, one is the next in order of the other, so
    that one of the terms is always 0. (A sum of two is several times faster than a choice.)"""
    distance_KM = values_KM - below_K1
    np.minimum(distance_KM, np.float32(0.0), out=distance_KM)
    higher_KM = values_KM - above_K1
    np.maximum(higher_KM, np.float32(0.0), out=higher_KM)
    distance_KM += higher_KM
    return np.asarray(distance_KM)


def _has_some(values_KM: np.ndarray) -> bool:
    """Whether some machines have no data in a metric that others have: metrics that no machine has are usual, and change no order.

    >>> _has_some(np.array([[1.0, 2.0], [np.nan, np.nan]])), _has_some(np.array([[1.0, 2.0], [np.nan, 1.0]]))
    (False, True)
    """
    largest_K = values_KM.max(axis=1)  # NaN where any value is
    gaps_K = largest_K != largest_K
    return bool(gaps_K.any()) and not bool(np.isnan(values_KM[gaps_K]).all())


def _at_least_0(place_K: np.ndarray | int) -> np.ndarray | int:
    return max(place_K, 0) if isinstance(place_K, int) else np.maximum(place_K, 0)
