"""Summed pairwise distances: how far each machine is from all others. Exact, in blocks: never all pairs in memory.

Legend: T windows, M machines, D dimensions. The work is quadratic in machines, as published (section 4.4).
"""

from __future__ import annotations

import numpy as np

from minder.diagnose.detectors.similarity.config import Distance

__all__ = ["normal_scores", "summed_distances"]

_BLOCK = 96  # machines: a block of pairs stays in the processor's cache
_PAIRS = 65_536  # pairs of one pass over several small windows


def summed_distances(vectors_TMD: np.ndarray, known_TM: np.ndarray, distance: Distance = "euclidean") -> np.ndarray:
    """(T, M) float64: the sum of a machine's distances to all known machines; of an unknown one, NaN."""
    count, machines = known_TM.shape
    sums_TM = np.full((count, machines), np.nan)
    if machines <= 2 * _BLOCK:
        step = max(1, _PAIRS // max(1, machines * machines))
        for t in range(0, count, step):
            part = slice(t, t + step)
            sums_TM[part] = _few(_centered(vectors_TMD[part], known_TM[part]), known_TM[part], distance)
    else:
        for t in range(count):
            sums_TM[t] = _many(_centered(vectors_TMD[t : t + 1], known_TM[t : t + 1])[0], known_TM[t], distance)
    sums_TM[~known_TM] = np.nan
    return sums_TM


def normal_scores(sums_TM: np.ndarray, least_spread: float) -> np.ndarray:
    """(T, M): by how many standard deviations a machine's sum exceeds the mean; 0 where unknown, or where all are alike.

    least_spread: the mean distance, per pair, below which all machines count as equal.
    """
    known_TM = ~np.isnan(sums_TM)
    count_T1 = np.maximum(known_TM.sum(axis=1, keepdims=True), 1)
    filled_TM = np.where(known_TM, sums_TM, 0.0)
    mean_T1 = filled_TM.sum(axis=1, keepdims=True) / count_T1
    apart_TM = np.where(known_TM, filled_TM - mean_T1, 0.0)
    std_T1 = np.sqrt((apart_TM**2).sum(axis=1, keepdims=True) / count_T1)
    alike_T1 = (mean_T1 / count_T1 < least_spread) | (std_T1 < 1e-6 * mean_T1)
    return np.where(alike_T1, 0.0, apart_TM / np.where(std_T1 > 0, std_T1, 1.0))


def _centered(vectors_TMD: np.ndarray, known_TM: np.ndarray) -> np.ndarray:
    """Distances do not change, and 32 bits are enough for a difference of small numbers."""
    weight_TM1 = known_TM[:, :, None] / np.maximum(known_TM.sum(axis=1), 1)[:, None, None]
    middle_T1D = (vectors_TMD * weight_TM1).sum(axis=1, keepdims=True)
    return np.where(known_TM[:, :, None], vectors_TMD - middle_T1D, 0.0)


def _few(vectors_TMD: np.ndarray, known_TM: np.ndarray, distance: Distance) -> np.ndarray:
    pairs_TMM = _pairs(vectors_TMD, vectors_TMD, distance)
    return np.asarray(np.matmul(pairs_TMM, known_TM[:, :, None].astype(pairs_TMM.dtype))[:, :, 0])


def _many(vectors_MD: np.ndarray, known_M: np.ndarray, distance: Distance) -> np.ndarray:
    """Each block of pairs is worked out once and counts for its rows and its columns."""
    vectors_MD, weight_M = vectors_MD.astype(np.float32), known_M.astype(np.float32)
    left_MD, right_DM = _factors(vectors_MD, vectors_MD)
    sums_M = np.zeros(len(vectors_MD))
    room = np.empty(_BLOCK * len(vectors_MD), dtype=np.float32)  # memory that is taken anew for each block costs more than the pairs
    for first in range(0, len(vectors_MD), _BLOCK):
        rows, columns = slice(first, first + _BLOCK), slice(first, len(vectors_MD))
        if distance == "euclidean":
            shape = (min(_BLOCK, len(vectors_MD) - first), len(vectors_MD) - first)
            pairs = _root(left_MD[rows], right_DM[:, columns], room[: shape[0] * shape[1]].reshape(shape))
        else:
            pairs = _pairs(vectors_MD[None, rows], vectors_MD[None, columns], distance)[0]
        sums_M[rows] += pairs @ weight_M[columns]
        sums_M[first + _BLOCK :] += weight_M[rows] @ pairs[:, _BLOCK:]
    return sums_M


def _pairs(a_TMD: np.ndarray, b_TND: np.ndarray, distance: Distance) -> np.ndarray:
    """(T, M, N): the distance of every pair."""
    if distance == "euclidean":
        return _euclidean(a_TMD, b_TND)
    found_TMN = np.zeros((*a_TMD.shape[:2], b_TND.shape[1]), dtype=a_TMD.dtype)
    for d in range(a_TMD.shape[2]):
        apart_TMN = np.abs(a_TMD[:, :, None, d] - b_TND[:, None, :, d])
        found_TMN = found_TMN + apart_TMN if distance == "manhattan" else np.maximum(found_TMN, apart_TMN)
    return found_TMN


def _euclidean(a_TMD: np.ndarray, b_TND: np.ndarray) -> np.ndarray:
    left_TMD, right_TDN = _factors(a_TMD, b_TND)
    return _root(left_TMD, right_TDN, np.empty((*a_TMD.shape[:2], b_TND.shape[1]), dtype=a_TMD.dtype))


def _factors(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|a|^2 + |b|^2 - 2ab of all pairs as one matrix product of these two."""
    square_a, square_b = (a**2).sum(axis=-1, keepdims=True), (b**2).sum(axis=-1, keepdims=True)
    left = np.concatenate([-2.0 * a, square_a, np.ones_like(square_a)], axis=-1)
    right = np.concatenate([b, np.ones_like(square_b), square_b], axis=-1)
    return left, np.ascontiguousarray(np.swapaxes(right, -1, -2))


def _root(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> np.ndarray:
    np.matmul(left, right, out=out)
    np.abs(out, out=out)  # what rounds to less than 0 is as near to 0 as what rounds to more: a third of the price of a maximum
    np.sqrt(out, out=out)
    return out
