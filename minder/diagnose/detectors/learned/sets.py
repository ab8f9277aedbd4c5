"""Several machines at fault at once: a pair, a rack, a switch, a stage. No labels are needed: every set of the loudest is a hypothesis.

The weight of a set of k is its prior over the product of its members' priors, so that their odds can be multiplied: all sets of one size
have the prior of that size between them. A set of more than a quarter of the job is what happened to the job, and accuses no machine.
Sums over all sets of one size are elementary symmetric polynomials of the odds: a few multiplications a machine.
Legend: M machines, C those with the largest odds, K sizes of sets.
"""

from __future__ import annotations

import functools
import math

import numpy as np

__all__ = ["MOST_TOGETHER", "share_of_sets"]

MOST_TOGETHER = 16
_LARGEST = 12  # machines of a set that is a fault of its members
_JOB_WIDE = 1.0  # causes of the whole job for each fault of one machine
_LEAST = 1e-3  # odds of the second machine from which on sets can matter


def share_of_sets(odds_M: np.ndarray, rest_odds: float, several: float) -> np.ndarray:
    """p_M: that a machine is at fault, alone or with others. odds_M: against no machine. rest_odds: of a fault, without data.

    several: of a hundred faults of one machine, how many of two, and how many of more, there are.
    """
    count = len(odds_M)
    together = min(count, MOST_TOGETHER)
    top_C = np.argpartition(odds_M, count - together)[count - together :] if count > together else np.arange(count)
    odds_C = odds_M[top_C]
    total = float(odds_M.sum())
    if count < 4 or not several or np.partition(odds_C, -2)[-2] < _LEAST:
        return np.asarray(odds_M / (1.0 + total))
    weight_K, fault_K = _weights(count, together, rest_odds, several)
    whole_K = np.zeros(together + 1)
    without_CK = np.zeros((together, together + 1))  # of the others, for each of them
    whole_K[0] = without_CK[:, 0] = 1.0
    others_CC = 1.0 - np.eye(together)
    for c, odds in enumerate(odds_C.tolist()):
        whole_K[1:] += odds * whole_K[:-1]
        without_CK[:, 1:] += odds * others_CC[:, c : c + 1] * without_CK[:, :-1]
    rest = max(total - float(odds_C.sum()), 0.0)  # of those that are left, one by one
    norm = float(weight_K @ whole_K) + rest
    p_M = odds_M / norm
    p_M[top_C] = odds_C * (without_CK[:, :-1] @ fault_K[1:]) / norm
    return np.asarray(p_M)


@functools.lru_cache(maxsize=256)
def _weights(count: int, together: int, rest_odds: float, several: float) -> tuple[np.ndarray, np.ndarray]:
    """(weight_K, fault_K) of sets of 0, 1, ..., `together` machines; fault_K: 0 where a set is the job's."""
    largest = min(max(2, count // 4), _LARGEST)
    more, wider = max(largest - 2, 1), max(together - largest, 1)
    weight_K, fault_K = np.ones(together + 1), np.ones(together + 1)
    for k in range(2, together + 1):
        size = several / 100.0 if k == 2 else several / 100.0 / more if k <= largest else _JOB_WIDE / wider
        sets = math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        weight_K[k] = math.exp(math.log(size * rest_odds) - sets - k * math.log(rest_odds / count))
        fault_K[k] = weight_K[k] if k <= largest else 0.0
    return weight_K, fault_K
