"""From deviations to one score per machine: families witness, and evidence accumulates at the square of their number.

One family that deviates fully needs `patience_s` to convict, two a quarter of it, three a ninth: strong evidence speaks in seconds,
weak evidence waits. Evidence that does not last leaks away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.numbers import numbers
from minder.diagnose.detectors.traits import TraitTable

__all__ = ["credit", "distinctness", "family_evidence", "loud_metrics", "needed_z", "newest_support", "single_family_weight", "summed"]


@dataclass(frozen=True, slots=True)
class EvidenceNumbers:
    """Section [evidence] of detector.toml: what each number is stands there."""

    old_s: float
    above_z: float
    no_series_z: float
    loud: float
    leads: float
    leads_span: float
    least_rival: float
    full_s: float
    hurry: float
    beyond: float
    most_s: float


_N = numbers("evidence", EvidenceNumbers)


def needed_z(machines: int, metrics: int) -> float:
    """Deviation below which nothing counts: grows with the number of series, of which one is always the most unusual.

    >>> round(needed_z(4, 5), 2), round(needed_z(1500, 19), 2)
    (2.95, 5.03)
    """
    return float(_N.above_z + np.sqrt(2.0 * np.log(max(2.0, machines * metrics)))) if machines * metrics > 0 else _N.no_series_z


def family_evidence(traits: TraitTable, evidence_KM: np.ndarray, falls_KM: np.ndarray) -> np.ndarray:
    """(F, M): the strongest member speaks for its family. evidence_KM in 0..1; falls_KM: the value is too low.

    A processor that falls quiet is a halted process, which reaches the training; one that is busier is housekeeping.
    """
    weighted_KM = evidence_KM * traits.weight_K1
    found_FM = np.zeros((len(traits.members), evidence_KM.shape[1]))
    for f, members in enumerate(traits.members):
        part = weighted_KM[members]
        if traits.families[f] == "halt":
            part = np.where(falls_KM[members], evidence_KM[members], 0.0)
        elif traits.families[f] == "host":
            part = np.where(falls_KM[members], 0.0, part)
        found_FM[f] = part.max(axis=0) if len(part) > 1 else part[0]
    return found_FM


def single_family_weight(families_FX: np.ndarray) -> np.ndarray:
    """0..1 per machine: 1 if one family speaks alone, 0 if others say as much as the loudest; 1 also where none does.

    >>> single_family_weight(np.array([[1.0, 1.0, 0.4], [0.0, 0.5, 0.4]]))
    array([1. , 0.5, 0. ])
    """
    loudest_X = families_FX.max(axis=0, initial=1e-9)  # no family at all: none speaks
    return np.asarray(np.clip(2.0 - families_FX.sum(axis=0) / loudest_X, 0.0, 1.0))


def loud_metrics(traits: TraitTable, counted_KX: np.ndarray) -> np.ndarray:
    """Mask (K, X) of the metrics that say at least half of what each machine's loudest says."""
    weighted_KX = counted_KX * traits.weight_K1
    return np.asarray(weighted_KX >= _N.loud * np.maximum(weighted_KX.max(axis=0, initial=0.0), 1e-9))


def newest_support(traits: TraitTable, loud_KX: np.ndarray, support_KX: np.ndarray, falls_KX: np.ndarray) -> np.ndarray:
    """(X,): 0..1, how much of what is loud the newest sample shows. Of what reaches the training, if any of that is loud: a GPU that is
    still warm, or a host that is still busy, does not show that its power is still off. falls_KX as for `family_evidence`."""
    reaches_KX = loud_KX & traits.reaching_KX(falls_KX)
    reported_KX = np.where(reaches_KX.any(axis=0), reaches_KX, loud_KX)
    return np.asarray((reported_KX * support_KX).max(axis=0, initial=0.0))


def distinctness(strength_M: np.ndarray, odd_s_M: np.ndarray | None = None) -> np.ndarray:
    """0..1 per machine: 0 up to 1.25 times the strongest other machine, 1 from twice on.

    odd_s_M: for how many seconds each has been odd, NaN who is not; who has been for a minute is compared only with who has been, too,
    for of thousands of machines another one jitters in every row.

    >>> distinctness(np.array([2.0, 1.0, 3.0]))
    array([0.        , 0.        , 0.33333333])
    >>> distinctness(np.array([2.0, 1.0, 3.0]), np.array([75.0, 90.0, 5.0]))
    array([1.        , 0.        , 0.33333333])
    """
    if len(strength_M) < 2:
        return np.zeros_like(strength_M)
    order = np.argpartition(strength_M, -2)[-2:]
    second, first = float(strength_M[order[0]]), float(strength_M[order[1]])
    others_M = np.full_like(strength_M, first)
    others_M[order[1]] = second
    share_M = np.asarray(np.clip((strength_M / np.maximum(others_M, _N.least_rival) - _N.leads) / _N.leads_span, 0.0, 1.0))
    if odd_s_M is None:
        return share_M
    old_M = odd_s_M >= _N.old_s
    return np.where(old_M, distinctness(np.where(old_M, strength_M, 0.0)), share_M) if old_M.any() else share_M


def summed(traits: TraitTable, families_FX: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """(X,): what the families of these names say together. families_FX: as `family_evidence` gives it."""
    chosen_F = np.array([name in names for name in traits.families], dtype=bool)
    return np.asarray(families_FX[chosen_F].sum(axis=0))


def credit(seconds_M: np.ndarray, hurry: bool) -> np.ndarray:
    """Seconds of evidence in one sample that comes after so many seconds: a single sample never says as much as many do. hurry: the
    training is slowed, and a sample's seconds beyond the fourth are worth more."""
    beyond_M = np.clip(seconds_M - _N.full_s, 0.0, _N.most_s)
    return np.asarray(np.minimum(seconds_M, _N.full_s) + (_N.hurry if hurry else _N.beyond) * beyond_M)
