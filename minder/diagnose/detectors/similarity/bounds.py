"""Which machine is the candidate of a window, without the distance of every pair, where bounds are enough.

Machines are put into groups along the direction in which they differ most. For the distances of one machine to the members of a group,
Jensen's inequality gives both

    n |x - c|  <=  sum of distances  <=  n sqrt(|x - c|^2 + v)

with c the group's mean and v its variance. For the machines that may be the farthest the sum itself is worked out. From these follow
bounds of every normal score; if they leave no doubt who is a candidate, so do the sums in their middle, which are then given instead
of the exact ones. Legend: T windows, M machines, D dimensions, G groups, X machines that may be the farthest.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from minder.diagnose.detectors.similarity.config import SimilarityConfig

__all__ = ["near_sums"]

_FEWEST = 256  # machines: of fewer all pairs are as quickly worked out
_GROUPS, _FARTHEST = 32, 8
_IN_VAIN, _AGAIN = 6, 8  # windows in a row that left a doubt: from then on only every so manieth is tried
_ROUNDING = 1e-3  # relative: distances are worked out in 32 bits, here and where they are exact


def near_sums(vectors_TMD: np.ndarray, known_TM: np.ndarray, config: SimilarityConfig) -> tuple[np.ndarray, np.ndarray]:
    """(T,) bool and (T, M): for which windows of a lane, in order, candidates are known, and sums that have the same candidates as the
    exact ones (NaN in the others)."""
    sums_TM = np.full(known_TM.shape, np.nan)
    machines, in_vain = known_TM.shape[1], 0
    if machines > _FEWEST and config.distance == "euclidean":
        for t in np.flatnonzero(known_TM.all(axis=1)).tolist():
            if in_vain < _IN_VAIN or t % _AGAIN == 0:
                found_M = _sums_M(vectors_TMD[t].astype(np.float32), config)
                in_vain = in_vain + 1 if found_M is None else 0
                if found_M is not None:
                    sums_TM[t] = found_M
    return ~np.isnan(sums_TM).any(axis=1), sums_TM


def _sums_M(vectors_MD: np.ndarray, config: SimilarityConfig) -> np.ndarray | None:
    """(M,) sums, or None where a doubt is left."""
    machines, needed = len(vectors_MD), config.needed(len(vectors_MD))
    middle_D = np.full(machines, 1.0 / machines, dtype=np.float32) @ vectors_MD  # a product: of few columns a mean is slow
    lower_M, upper_M = _bounds(vectors_MD - middle_D)
    middle_M: np.ndarray = 0.5 * (lower_M + upper_M)
    half_M: np.ndarray = 0.5 * (upper_M - lower_M)
    least_mean, most_mean = float(lower_M.mean()), float(upper_M.mean())
    if most_mean < machines * config.least_spread:
        return middle_M  # all count as equal
    std, doubt = float(middle_M.std()), float(np.sqrt(np.mean(half_M**2)))
    if float(upper_M.max()) - least_mean < needed * (std - doubt) and least_mean > 2.0 * machines * config.least_spread:
        return middle_M  # no candidate
    farthest = int(np.argmax(lower_M))
    nearer = float(np.delete(upper_M, farthest).max())
    plain = lower_M[farthest] > nearer and float(lower_M[farthest]) - most_mean > needed * (std + doubt)
    return middle_M if plain and config.top_k == 1 and least_mean > 2.0 * machines * config.least_spread else None


def _bounds(centered_MD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(M,), (M,): no machine's sum of distances is smaller than the first, none larger than the second."""
    machines, dims = centered_MD.shape
    columns = np.ones((dims + 2, machines), dtype=np.float32)  # vectors, their squares, ones
    columns[:dims] = centered_MD.T
    np.einsum("md,md->m", centered_MD, centered_MD, out=columns[dims])
    along_M = np.linalg.eigh(centered_MD.T @ centered_MD)[1][:, -1] @ columns[:dims]
    first_G, size_G = _groups(machines)
    sums = np.add.reduceat(np.take(columns, np.argsort(along_M), axis=1), first_G, axis=1) / size_G
    middle_DG, mean_square_G = sums[:dims], sums[dims]
    square_G = (middle_DG**2).sum(axis=0)
    square_GM = _squares(middle_DG, square_G, columns)
    lower_M = (size_G @ np.sqrt(square_GM)).astype(np.float64)
    square_GM += np.maximum(mean_square_G - square_G, 0.0)[:, None]
    upper_M = (size_G @ np.sqrt(square_GM, out=square_GM)).astype(np.float64)
    x = np.argpartition(upper_M, -_FARTHEST)[-_FARTHEST:]
    lower_M[x] = upper_M[x] = np.sqrt(_squares(columns[:dims, x], columns[dims, x], columns)).sum(axis=1)
    return (1.0 - _ROUNDING) * lower_M, (1.0 + _ROUNDING) * upper_M


@lru_cache(maxsize=8)
def _groups(machines: int) -> tuple[np.ndarray, np.ndarray]:
    """Where each group begins in the order, and its size."""
    first_G = np.arange(0, machines, -(-machines // _GROUPS))
    return first_G, np.diff(first_G, append=machines).astype(np.float32)


def _squares(others_DN: np.ndarray, square_N: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """(N, M) squared distances of all pairs. columns: all vectors, their squares and ones."""
    left = np.concatenate([-2.0 * others_DN, np.ones((1, len(square_N)), dtype=np.float32), square_N[None]])
    found = left.T @ columns
    return np.asarray(np.abs(found, out=found))
