"""The study's what-if questions: everything ideal, except one stage, one data-parallel rank, one kind of operation.

Shape legend: N operations of one pipeline, S scenarios, T steps, D data-parallel ranks, P stages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.step_traces.durations import ideal_costs, own_costs
from minder.diagnose.step_traces.graph import StepGraph, build_graph
from minder.diagnose.step_traces.replay import replay
from minder.diagnose.step_traces.schema import reported_kind
from minder.diagnose.step_traces.trace import StepTrace

__all__ = ["Costs", "prepare", "replay_costs", "replay_kept", "replay_one_rank_each"]

_BATCH_CELLS = 8_000_000  # 64 MB of costs at a time


@dataclass(frozen=True, slots=True)
class Costs:
    """A trace, ready to be replayed. real_NTD: what operations cost; ideal_N: what they would cost ideally; both in seconds."""

    trace: StepTrace
    graph: StepGraph
    real_NTD: np.ndarray
    ideal_N: np.ndarray

    @property
    def stage_N(self) -> np.ndarray:
        return np.array([operation.stage for operation in self.trace.operations])

    @property
    def kind_N(self) -> np.ndarray:
        """Kinds as reported: both ends of a transfer are one."""
        return np.array([reported_kind(operation.kind) for operation in self.trace.operations])


def prepare(trace: StepTrace) -> Costs:
    """Raises TraceError where the trace's operations do not fit together."""
    graph = build_graph(trace)
    real_NTD = own_costs(trace, graph)
    return Costs(trace, graph, real_NTD, ideal_costs(trace, real_NTD))


def replay_kept(costs: Costs, keep: Sequence[np.ndarray]) -> np.ndarray:
    """Step times ST, seconds. keep: for each scenario an ND array (or N1) of what keeps its real cost; all else is ideal."""
    ideal_N1TD = np.broadcast_to(costs.ideal_N[:, None, None, None], (len(costs.ideal_N), 1, *costs.real_NTD.shape[1:]))
    batch = max(1, _BATCH_CELLS // costs.real_NTD.size)
    done = []
    for first in range(0, len(keep), batch):
        keep_NSD = np.stack(
            [np.broadcast_to(kept, (len(costs.ideal_N), costs.real_NTD.shape[2])) for kept in keep[first : first + batch]], axis=1
        )
        done.append(replay(costs.graph, np.where(keep_NSD[:, :, None, :], costs.real_NTD[:, None], ideal_N1TD)))
    return np.concatenate(done)


def replay_costs(costs: Costs, changed: Sequence[np.ndarray]) -> np.ndarray:
    """Step times ST, seconds, of whole cost tables of one's own, NTD each."""
    return np.concatenate([replay(costs.graph, table_NTD[:, None].copy()) for table_NTD in changed])


def replay_one_rank_each(costs: Costs) -> np.ndarray:
    """Step times DT, seconds: all ideal except data-parallel rank d, for every d.

    The other ranks are all alike then, so that one column stands for them: the work grows with D, not with its square.
    """
    count, steps, ranks = costs.real_NTD.shape
    batch = max(1, _BATCH_CELLS // (2 * count * steps))
    done = []
    for first in range(0, ranks, batch):
        real_NDT = costs.real_NTD[:, :, first : first + batch].transpose(0, 2, 1)
        table = np.empty((*real_NDT.shape, min(2, ranks)))
        table[..., 0] = real_NDT
        table[..., 1:] = costs.ideal_N[:, None, None, None]
        done.append(replay(costs.graph, table))
    return np.concatenate(done)
