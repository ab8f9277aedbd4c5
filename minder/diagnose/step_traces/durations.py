"""What each operation cost by itself, without waiting, and what it would cost ideally.

Shape legend: N operations of one pipeline, T steps, D data-parallel ranks.
"""

from __future__ import annotations

import numpy as np

from minder.diagnose.step_traces.graph import StepGraph
from minder.diagnose.step_traces.schema import is_communication
from minder.diagnose.step_traces.trace import StepTrace

__all__ = ["ideal_costs", "own_costs"]

_CLOCK_ERROR_S = 0.010  # a transfer that ended this long before it began is about clocks, not about the transfer (public artifact)


def own_costs(trace: StepTrace, graph: StepGraph) -> np.ndarray:
    """NTD, seconds. Computes: as recorded. Communication: from the last participant's start on; before that it only waited."""
    cost_NTD = trace.duration_NTD.copy()
    for group in graph.groups:
        if not group.communication:
            continue
        members = list(group.members)
        last_start_TD = trace.start_NTD[members].max(axis=0)
        if group.wide:
            last_start_TD = last_start_TD.max(axis=1, keepdims=True)
        cost = trace.start_NTD[members] + trace.duration_NTD[members] - last_start_TD
        cost_NTD[members] = np.where(cost <= -_CLOCK_ERROR_S, 0.0, cost)
    return cost_NTD


def ideal_costs(trace: StepTrace, cost_NTD: np.ndarray) -> np.ndarray:
    """N, seconds: over all workers and steps the mean for computes (imbalance can be evened out), the median for communication (flaps)."""
    kinds = np.array([operation.kind for operation in trace.operations])
    ideal_N = np.empty(len(kinds))
    for kind in np.unique(kinds):
        of_kind_N = kinds == kind
        costs = cost_NTD[of_kind_N]
        ideal_N[of_kind_N] = np.median(costs) if is_communication(str(kind)) else costs.mean()
    return ideal_N
