"""Who computes longer than whom: workers against their peers in the same stage, stages against stages, microbatches against microbatches.

Shape legend: N operations of one pipeline, P stages, M microbatches, T steps, D data-parallel ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.diagnose.step_traces.scenarios import Costs
from minder.model.errors import TraceError

__all__ = ["SHARED", "Balance", "measure_balance"]

SHARED = 0.5  # a variation that stages share at least this much comes with the data
_SURE = 4.0  # standard errors
_APART = 1.1  # the study's line for "straggles", here of one worker against its peers
_LEAST_OF_WORST = 0.25  # a named worker loses at least this part of what the worst one loses
_STEPS_FOR_SPREAD = 4  # fewer steps say nothing about how steady a difference is
_ALIKE = 0.25  # of what a rank loses: its stages differ by no more than this
_FLOOR = 0.005  # no difference is known better than this


@dataclass(frozen=True, slots=True)
class Balance:
    """against_peers_PD: a worker's compute time as a ratio to the median of the others in its stage, NaN where there are none.

    slow_PD: workers that are surely slow, whatever their microbatches were. steady_PD: the share of steps in which a worker was slower.
    stage_P: each stage's compute time as a ratio to the mean stage's, by what its healthier workers need.
    correlation_P: of a microbatch's forward and backward time (the study's); within_worker: the same without the workers' own means.
    across_stages: of a microbatch's time in one stage and in the others, NaN with one stage: a long sequence is long in all of them.
    """

    against_peers_PD: np.ndarray
    slow_PD: np.ndarray
    steady_PD: np.ndarray
    stage_P: np.ndarray
    correlation_P: np.ndarray
    within_worker: float
    across_stages: float
    longest_microbatch: float


def measure_balance(costs: Costs) -> Balance:
    """Raises TraceError if a stage's forward and backward computes are not of the same microbatches."""
    forward_PMTD, backward_PMTD = (_by_microbatch(costs, kind) for kind in ("forward-compute", "backward-compute"))
    if len(forward_PMTD[0]) != len(backward_PMTD[0]):
        counts = f"forward-compute of {len(forward_PMTD[0])} microbatches and backward-compute of {len(backward_PMTD[0])}"
        raise TraceError(f"a stage has {counts}: trace both of each, check mb_id")
    both_PMTD = forward_PMTD + backward_PMTD
    against_PD, steady_PD = _against_peers(both_PMTD)
    worker_PD = both_PMTD.mean(axis=(1, 2))
    level_P = np.quantile(worker_PD, 0.5, axis=1, method="lower")
    across_stages = _across_stages(_without_worker_means(both_PMTD))
    slow_PD = _surely_slow(both_PMTD, against_PD, wandering=not across_stages < SHARED)
    return Balance(
        against_peers_PD=against_PD,
        slow_PD=slow_PD & ~_with_long_data(slow_PD, against_PD, across_stages),
        steady_PD=steady_PD,
        stage_P=level_P / level_P.mean(),
        correlation_P=np.array([_correlation(f, b) for f, b in zip(forward_PMTD, backward_PMTD, strict=True)]),
        within_worker=_correlation(_without_worker_means(forward_PMTD), _without_worker_means(backward_PMTD)),
        across_stages=across_stages,
        longest_microbatch=float((both_PMTD / both_PMTD.mean(axis=(1, 2, 3), keepdims=True)).max()),
    )


def _by_microbatch(costs: Costs, kind: str) -> np.ndarray:
    """PMTD, seconds: the chunks of a microbatch in one stage are added up."""
    layout = costs.trace.layout
    tables: list[np.ndarray] = []
    for stage in range(layout.pp_size):
        indexes = [index for index, operation in enumerate(costs.trace.operations) if (operation.stage, operation.kind) == (stage, kind)]
        microbatch_N = np.array([costs.trace.operations[index].microbatch for index in indexes])
        names_M, count_M = np.unique(microbatch_N, return_counts=True)
        if (count_M != layout.vpp_size).any() or (tables and len(names_M) != len(tables[0])):
            raise TraceError(
                f"stage {stage} has {len(indexes)} {kind} of {len(names_M)} microbatches: every stage needs one for each of the same"
                f" microbatches and its {layout.vpp_size} model chunks, check mb_id and vpp_size"
            )
        order = np.argsort(microbatch_N, kind="stable")
        table_NTD = costs.real_NTD[np.array(indexes)[order]]
        tables.append(table_NTD.reshape(len(names_M), layout.vpp_size, *table_NTD.shape[1:]).sum(axis=1))
    return np.stack(tables)


def _median_of_others(values: np.ndarray) -> np.ndarray:
    """Along the last axis, of at least two: for each, the median of all but itself."""
    count = values.shape[-1]
    order = np.argsort(values, axis=-1)
    sorted_values: np.ndarray = np.take_along_axis(values, order, axis=-1)
    place = np.argsort(order, axis=-1)
    low, high = (count - 2) // 2, (count - 1) // 2
    without = [np.take_along_axis(sorted_values, np.where(pick < place, pick, pick + 1), axis=-1) for pick in (low, high)]
    median: np.ndarray = (without[0] + without[1]) / 2
    return median


def _against_peers(both_PMTD: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if both_PMTD.shape[-1] < 2:
        nothing_PD = np.full((both_PMTD.shape[0], 1), np.nan)
        return nothing_PD, nothing_PD
    worker_PD, step_PTD = both_PMTD.mean(axis=(1, 2)), both_PMTD.mean(axis=1)
    steady_PD = (step_PTD > _median_of_others(step_PTD)).mean(axis=1)
    return worker_PD / _positive(_median_of_others(worker_PD)), steady_PD


def _surely_slow(both_PMTD: np.ndarray, against_PD: np.ndarray, wandering: bool) -> np.ndarray:
    """A worker is slow if it loses clearly more than its microbatches vary, and its steps where long sequences may wander over the ranks.

    Where stages do not share their variation it is not the data's: then a worker may also be slow in some steps only.
    """
    if both_PMTD.shape[-1] < 2:
        return np.zeros(against_PD.shape, dtype=bool)
    error_PD = _relative_spread(both_PMTD, (1, 2)) / np.sqrt(both_PMTD.shape[1] * both_PMTD.shape[2])
    if wandering and both_PMTD.shape[2] >= _STEPS_FOR_SPREAD:
        step_PTD = both_PMTD.mean(axis=1)
        relative_PTD = step_PTD / _positive(step_PTD.mean(axis=2, keepdims=True))
        error_PD = np.maximum(error_PD, _relative_spread(relative_PTD, (1,)) / np.sqrt(both_PMTD.shape[2]))
    error_PD = np.hypot(error_PD, _median_of_others(error_PD)) + _FLOOR
    excess_PD = against_PD - 1.0
    sure_PD = (against_PD >= _APART) & (excess_PD >= _SURE * error_PD)
    worst = float(excess_PD[sure_PD].max()) if sure_PD.any() else 0.0
    slow_PD: np.ndarray = sure_PD & (excess_PD >= _LEAST_OF_WORST * worst)
    return slow_PD


def _with_long_data(slow_PD: np.ndarray, against_PD: np.ndarray, across_stages: float) -> np.ndarray:
    """Data-parallel ranks that are slow in all of their stages, equally: their sequences were longer, since every stage sees the same ones
    and stages are on machines of their own. D, bool."""
    if len(slow_PD) < 2 or not across_stages >= SHARED:
        return np.zeros(slow_PD.shape[1], dtype=bool)
    apart_D = against_PD.max(axis=0) - against_PD.min(axis=0)
    alike_D: np.ndarray = slow_PD.all(axis=0) & (apart_D <= _ALIKE * (against_PD.mean(axis=0) - 1.0))
    return alike_D


def _relative_spread(values: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    spread: np.ndarray = values.std(axis=axes) / _positive(values.mean(axis=axes))
    return spread


def _without_worker_means(cost_PMTD: np.ndarray) -> np.ndarray:
    centred: np.ndarray = cost_PMTD - cost_PMTD.mean(axis=(1, 2), keepdims=True)
    return centred


def _across_stages(centred_PMTD: np.ndarray) -> float:
    stages = centred_PMTD.shape[0]
    if stages < 2:
        return float("nan")
    others_PMTD = (centred_PMTD.sum(axis=0) - centred_PMTD) / (stages - 1)
    return float(np.median([_correlation(own, other) for own, other in zip(centred_PMTD, others_PMTD, strict=True)]))


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Pearson's, over all cells; 0 where one of them does not vary."""
    a, b = first.ravel() - first.mean(), second.ravel() - second.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale > 0 else 0.0


def _positive(values: np.ndarray) -> np.ndarray:
    positive: np.ndarray = np.maximum(values, np.finfo(float).tiny)
    return positive
