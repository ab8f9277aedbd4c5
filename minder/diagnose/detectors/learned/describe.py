"""The inputs of the trees: what one bin says of the machines that deviate most, by kind, as a whole, and of their job.

Of a kind with several series the one that deviates most (at 25 s) speaks. Legend: K series, M machines, C candidates, P kinds, F features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.learned.kinds import COMMON_KINDS, KINDS, SeriesTable
from minder.diagnose.detectors.learned.ordered import few_of

__all__ = ["CANDIDATES", "FEATURES", "KIND_FEATURES", "SIGNED", "Deviations", "describe", "kind_levels", "odd_machines"]

CANDIDATES = 16
_OF_KIND = ("now", "quick", "slow", "peer", "size", "lead", "slow_lead")
SIGNED = 5  # of a kind's features, the first so many have a sign that says to which side; leads have one of their own
_OF_MACHINE = (
    "silent_s", "odd_kinds", "loud", "loud_lead", "loud_rank", "frozen", "calm_share", "slow_loud", "slow_loud_lead", "odd_s", "stage_odd",
)  # fmt: skip
_OF_JOB = (
    *(f"common_{kind}" for kind in COMMON_KINDS), *(f"has_{kind}" for kind in COMMON_KINDS), "odd_share", "odd_twice_share", "silent_share",
    "log_machines", "interval_s", "age_s", "slowed_s",
)  # fmt: skip
FEATURES = (*(f"{kind}_{name}" for kind in KINDS for name in _OF_KIND), *_OF_MACHINE, *_OF_JOB)
KIND_FEATURES: Mapping[str, slice] = {kind: slice(i * len(_OF_KIND), (i + 1) * len(_OF_KIND)) for i, kind in enumerate(KINDS)}

_ODD = 3.0
_MOST, _LOUDEST = 30.0, 10.0
_LONGEST_S = 600.0


@dataclass(frozen=True, slots=True)
class Deviations:
    """What one bin left in the stream, in usual sizes but for size_KM (scaled units). seen_KM: whether the series was ever there.

    same_s_KM: for how long a value has repeated itself. silent_s_M, odd_s_M: for how long a machine has been silent, or odd.
    stage_M: number of the machine's group of peers, -1 where it is compared with the whole job.
    """

    now_KM: np.ndarray
    quick_KM: np.ndarray
    slow_KM: np.ndarray
    peer_KM: np.ndarray
    size_KM: np.ndarray
    seen_KM: np.ndarray
    same_s_KM: np.ndarray
    silent_s_M: np.ndarray
    odd_s_M: np.ndarray
    stage_M: np.ndarray


def kind_levels(table: SeriesTable, size_KM: np.ndarray, seen_KM: np.ndarray) -> np.ndarray:
    """(P, M): the largest magnitude among a kind's series, NaN where the machine never showed one."""
    size_KM = np.abs(size_KM)
    if not seen_KM.all():
        size_KM[~seen_KM] = np.nan
    return np.asarray(np.minimum(table.largest(size_KM), np.float32(_MOST)))


def odd_machines(quick_PM: np.ndarray) -> np.ndarray:
    """How many kinds of each machine deviate plainly."""
    return np.asarray((quick_PM > _ODD).sum(axis=0))


def describe(
    table: SeriesTable, seen: Deviations, quick_PM: np.ndarray, odd_M: np.ndarray, job_F: Sequence[float], dt_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """(candidates_C, features_CF). quick_PM: `kind_levels` of quick_KM; odd_M: `odd_machines`; job_F: of `_OF_JOB`, the same for all."""
    slow_PM = kind_levels(table, seen.slow_KM, seen.seen_KM)
    loud_M = _loudness(quick_PM) + np.minimum(seen.silent_s_M / 15.0, _LOUDEST)
    slow_loud_M = _loudness(slow_PM)
    chosen_C = _loudest(loud_M)
    features_CF = np.full((len(chosen_C), len(FEATURES)), np.nan, dtype=np.float32)
    own_CPX = features_CF[:, : len(KINDS) * len(_OF_KIND)].reshape(len(chosen_C), len(KINDS), len(_OF_KIND))
    _fill_signed(own_CPX, table, seen, chosen_C)
    own_CPX[:, :, SIGNED] = _lead(quick_PM, chosen_C).T
    own_CPX[:, :, SIGNED + 1] = _lead(slow_PM, chosen_C).T
    quick_PC = quick_PM[:, chosen_C]
    known_PC = ~np.isnan(quick_PC)
    of_machine = (
        np.minimum(seen.silent_s_M[chosen_C], _LONGEST_S),
        odd_M[chosen_C],
        loud_M[chosen_C],
        _lead(loud_M[None], chosen_C)[0],
        np.log1p(np.arange(len(chosen_C))),
        _frozen(seen, chosen_C, dt_s),
        (known_PC & (quick_PC < 1.0)).sum(axis=0) / np.maximum(known_PC.sum(axis=0), 1),
        slow_loud_M[chosen_C],
        _lead(slow_loud_M[None], chosen_C)[0],
        np.minimum(seen.odd_s_M[chosen_C], _LONGEST_S),
        _stage_odd(seen.stage_M, odd_M, chosen_C),
    )
    first = len(KINDS) * len(_OF_KIND)
    features_CF[:, first : first + len(of_machine)] = np.array(of_machine).T
    features_CF[:, first + len(of_machine) :] = job_F
    return chosen_C, np.clip(features_CF, -_LONGEST_S, _LONGEST_S)


def _loudness(level_PM: np.ndarray) -> np.ndarray:
    return np.asarray(np.nansum(np.minimum(level_PM, np.float32(_LOUDEST)), axis=0))


def _loudest(loud_M: np.ndarray) -> np.ndarray:
    """The loudest first; of equals the one that comes first."""
    if len(loud_M) > CANDIDATES:
        least = np.partition(loud_M, len(loud_M) - CANDIDATES)[len(loud_M) - CANDIDATES]
        above, equal = np.flatnonzero(loud_M > least), np.flatnonzero(loud_M == least)
        chosen = np.sort(np.concatenate([above, equal[: CANDIDATES - len(above)]]))
    else:
        chosen = np.arange(len(loud_M))
    return np.asarray(chosen[np.argsort(-loud_M[chosen], kind="stable")])


def _fill_signed(out_CPX: np.ndarray, table: SeriesTable, seen: Deviations, chosen_C: np.ndarray) -> None:
    """Of each kind the series that deviates most speaks."""
    if not len(table.there_P):
        return
    there_KC, quick_KC = seen.seen_KM[:, chosen_C], np.abs(seen.quick_KM[:, chosen_C])
    best_PC = np.array([places[quick_KC[places].argmax(axis=0)] for places in table.members if len(places)])
    known_PC = np.logical_or.reduceat(there_KC[table.by_kind], table.begins, axis=0)
    parts = [values_KM[:, chosen_C] for values_KM in (seen.now_KM, seen.quick_KM, seen.slow_KM, seen.peer_KM, seen.size_KM)]
    values_XPC = np.clip(np.array(parts)[:, best_PC, np.arange(len(chosen_C))], -_MOST, _MOST)
    out_CPX[:, table.there_P, :SIGNED] = np.where(known_PC, values_XPC, np.nan).transpose(2, 1, 0)


def _lead(level_PM: np.ndarray, chosen_C: np.ndarray) -> np.ndarray:
    """(P, C): by how much each candidate is ahead of all others; behind the first one for the others. NaN stays."""
    if level_PM.shape[1] < 2:
        return np.asarray(level_PM[:, chosen_C])
    known_PM = np.where(np.isnan(level_PM), -np.inf, level_PM)
    rows, best_P = np.arange(len(known_PM)), known_PM.argmax(axis=1)
    first_P1 = known_PM[rows, best_P][:, None]
    known_PC, is_first_PC = known_PM[:, chosen_C], chosen_C[None] == best_P[:, None]
    known_PM[rows, best_P] = -np.inf
    second_P1 = known_PM.max(axis=1)[:, None]
    second_P1 = np.where(np.isfinite(second_P1), second_P1, 0.0)
    with np.errstate(invalid="ignore"):
        lead_PC = np.where(is_first_PC, known_PC - second_P1, known_PC - first_P1)
    return np.asarray(np.where(np.isfinite(known_PC), lead_PC, np.nan))


def _frozen(seen: Deviations, chosen_C: np.ndarray, dt_s: float) -> np.ndarray:
    """How long (log of bins) a gauge of the machine has repeated itself while its peers' moved."""
    if not len(seen.same_s_KM):
        return np.zeros(len(chosen_C))
    moving_K = (np.median(few_of(seen.same_s_KM), axis=1) < 2.0 * dt_s) & (seen.seen_KM.sum(axis=1) > 2)
    same_KC = seen.same_s_KM[:, chosen_C] * (moving_K[:, None] & seen.seen_KM[:, chosen_C])
    return np.asarray(np.log1p(same_KC.max(axis=0) / dt_s))


def _stage_odd(stage_M: np.ndarray, odd_M: np.ndarray, chosen_C: np.ndarray) -> np.ndarray:
    """The share of the candidate's peers that are odd, without itself; NaN where it has no stage."""
    if not len(stage_M) or stage_M.max() < 0:
        return np.full(len(chosen_C), np.nan)
    size_G, odd_G = np.bincount(stage_M + 1), np.bincount(stage_M + 1, weights=odd_M > 0)
    stage_C = stage_M[chosen_C]
    share_C = (odd_G[stage_C + 1] - (odd_M[chosen_C] > 0)) / np.maximum(size_G[stage_C + 1] - 1, 1)
    return np.asarray(np.where(stage_C >= 0, share_C, np.nan))
