"""Why a job's steps are slow: what would fixing each possible cause bring?

Each cause is tried in the simulator: its effect is taken out of the real costs and the steps are replayed. The cause whose repair
brings back most of the slowdown is named. Only a slow worker blames anyone.

Shape legend: N operations of one pipeline, P stages, T steps, D data-parallel ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from minder.diagnose.step_traces.balance import SHARED, Balance
from minder.diagnose.step_traces.scenarios import Costs, replay_costs
from minder.diagnose.step_traces.schema import COMPUTE, P2P, is_communication
from minder.diagnose.step_traces.study import Study
from minder.model.evidence import STRAGGLES

__all__ = ["Finding", "find_cause"]

_WORKER_SHARE = 0.5  # the study's line for M_W: fixing these few workers brings back at least half
_OTHER_SHARE = 0.25  # less than this is no cause
_CORRELATED = 0.8  # the study takes 0.9, with the workers' own means left in, which a slow worker raises

_SURELY_CORRELATED, _FAR_TOO_SLOW = 0.9, 1.5

WORKER, STAGE, SEQUENCE, COMMUNICATION, NONE = "worker", "stage imbalance", "sequence imbalance", "communication", "none"


@dataclass(frozen=True, slots=True)
class Finding:
    """cause: one of docs/step-traces.md. blame: (dp_rank, stage). shares: of the slowdown that goes with each cause's repair.

    fixed_s: mean step time with the named cause repaired. slowest_link: (kind, stage, dp_rank or None: all) that loses most.
    """

    cause: str
    blame: tuple[tuple[int, int], ...]
    shares: dict[str, float]
    fixed_s: float
    slowest_link: tuple[str, int, int | None] | None


def find_cause(costs: Costs, found: Study, balance: Balance) -> Finding:
    """Four more replays."""
    best_N = _best_communication(costs)
    repairs = {
        WORKER: _without_slow_workers(costs, balance.slow_PD),
        STAGE: _with_even_stages(costs),
        SEQUENCE: _with_even_microbatches(costs, balance.slow_PD),
        COMMUNICATION: np.where(np.isnan(best_N)[:, None, None], costs.real_NTD, best_N[:, None, None]),
    }
    fixed = {cause: float(time_T.mean()) for cause, time_T in zip(repairs, replay_costs(costs, list(repairs.values())), strict=True)}
    shares = {cause: found.share(fixed_s) if found.slowdown > 1.0 else 0.0 for cause, fixed_s in fixed.items()}
    real_s = float(found.simulated_T.mean())
    if found.slowdown >= STRAGGLES:
        cause = _largest(shares, balance)
        cause = _of_both(costs, found, balance, shares) if cause == NONE else cause
    else:  # where most links are slow, so is their median: the study's ideal does not see them, the fastest link does
        cause = COMMUNICATION if real_s >= STRAGGLES * fixed[COMMUNICATION] else NONE
    slow = [(int(rank), int(stage)) for stage, rank in np.argwhere(balance.slow_PD)]
    blame = tuple(sorted(slow, key=lambda place: -balance.against_peers_PD[place[1], place[0]])) if cause == WORKER else ()
    link = _slowest_link(costs, best_N) if cause == COMMUNICATION else None
    return Finding(cause, blame, shares, fixed.get(cause, real_s), link)


def _largest(shares: dict[str, float], balance: Balance) -> str:
    able = {cause: share for cause, share in shares.items() if share >= (_WORKER_SHARE if cause == WORKER else _OTHER_SHARE)}
    if not balance.slow_PD.any():
        able.pop(WORKER, None)
    if balance.within_worker < _CORRELATED or balance.across_stages < SHARED:
        able.pop(SEQUENCE, None)
    return max(able, key=lambda cause: able[cause]) if able else NONE


def _of_both(costs: Costs, found: Study, balance: Balance, shares: dict[str, float]) -> str:
    """A far too slow worker among uneven sequences: either repair alone leaves the other's waiting, and seems to bring little. Where
    both together bring most of the slowdown, the worker is named, unless sequences bring twice as much by themselves."""
    together = balance.within_worker >= _SURELY_CORRELATED and balance.across_stages >= _SURELY_CORRELATED
    if not together or not (balance.slow_PD & (balance.against_peers_PD >= _FAR_TOO_SLOW)).any():
        return NONE
    even_NTD = _with_even_microbatches(costs, balance.slow_PD)
    both_NTD = _without_slow_workers(replace(costs, real_NTD=even_NTD), balance.slow_PD)
    (time_T,) = replay_costs(costs, [both_NTD])
    if found.share(float(time_T.mean())) < _WORKER_SHARE:
        return NONE
    return WORKER if shares[WORKER] >= 0.5 * shares[SEQUENCE] else SEQUENCE


def _indexes(costs: Costs, kinds: tuple[str, ...]) -> np.ndarray:
    return np.array([index for index, operation in enumerate(costs.trace.operations) if operation.kind in kinds])


def _without_slow_workers(costs: Costs, slow_PD: np.ndarray) -> np.ndarray:
    """Slow workers compute as the others of their stage do, operation by operation."""
    changed_NTD = costs.real_NTD.copy()
    for index in _indexes(costs, COMPUTE):
        slow_D = slow_PD[costs.trace.operations[index].stage]
        if slow_D.any() and not slow_D.all():
            changed_NTD[index][:, slow_D] = changed_NTD[index][:, ~slow_D].mean(axis=1, keepdims=True)
    return changed_NTD


def _with_even_stages(costs: Costs) -> np.ndarray:
    """Every stage computes as long as the mean stage does; the differences inside a stage stay."""
    changed_NTD = costs.real_NTD.copy()
    for kind in ("forward-compute", "backward-compute"):
        of_stage = [_in_stage(costs, kind, stage) for stage in range(costs.trace.layout.pp_size)]
        level = np.array([np.quantile(costs.real_NTD[indexes].mean(axis=(0, 1)), 0.5, method="lower") for indexes in of_stage])
        for indexes, own in zip(of_stage, level, strict=True):
            if own > 0:
                changed_NTD[indexes] *= level.mean() / own
    return changed_NTD


def _with_even_microbatches(costs: Costs, slow_PD: np.ndarray) -> np.ndarray:
    """Every microbatch costs what the stage's mean microbatch does; slow workers and long stages stay as they are."""
    changed_NTD = costs.real_NTD.copy()
    chunks = {operation.chunk for operation in costs.trace.operations if operation.kind in COMPUTE[:2]}
    for kind in ("forward-compute", "backward-compute"):
        for stage, slow_D in enumerate(slow_PD):
            for chunk in chunks:
                indexes = [index for index in _in_stage(costs, kind, stage) if costs.trace.operations[index].chunk == chunk]
                mean_D = costs.real_NTD[indexes].mean(axis=(0, 1))
                changed_NTD[indexes] = np.where(slow_D, mean_D, mean_D[~slow_D].mean())
    return changed_NTD


def _in_stage(costs: Costs, kind: str, stage: int) -> np.ndarray:
    return np.array([index for index in _indexes(costs, (kind,)) if costs.trace.operations[index].stage == stage])


def _best_communication(costs: Costs) -> np.ndarray:
    """N, seconds, NaN for computes: the ideal, or for transfers between stages what the fastest link needs, since all carry as much."""
    operations = costs.trace.operations
    best_N = np.array(
        [ideal if is_communication(operation.kind) else np.nan for operation, ideal in zip(operations, costs.ideal_N, strict=True)]
    )
    links: dict[tuple[str, int], list[int]] = {}
    for index, operation in enumerate(operations):
        if operation.kind in P2P:
            links.setdefault((operation.kind, operation.stage), []).append(index)
    if links:
        fastest_s = min(float(np.median(costs.real_NTD[indexes])) for indexes in links.values())
        transfers = [index for indexes in links.values() for index in indexes]
        best_N[transfers] = np.minimum(best_N[transfers], max(fastest_s, 0.0))
    return best_N


def _slowest_link(costs: Costs, best_N: np.ndarray) -> tuple[str, int, int | None] | None:
    """The kind and stage that lose most against the best; with the data-parallel rank if one of several loses over half of it."""
    lost_D: dict[tuple[str, int], np.ndarray] = {}
    for operation, cost_TD, best_s in zip(costs.trace.operations, costs.real_NTD, best_N, strict=True):
        if is_communication(operation.kind):
            place = (operation.kind, operation.stage)
            lost_D[place] = lost_D.get(place, 0.0) + (cost_TD - best_s).mean(axis=0).clip(min=0)
    if not lost_D:
        return None
    (kind, stage), ranks_D = max(lost_D.items(), key=lambda item: float(item[1].mean()))
    alone = kind in P2P and len(ranks_D) > 1 and ranks_D.max() > 0.5 * ranks_D.sum()
    return kind, stage, int(ranks_D.argmax()) if alone else None
