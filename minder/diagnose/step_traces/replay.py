"""Replay of a step's dependency graph with given costs: the whole study is this sweep, done for many cases at once.

Shape legend: N operations of one pipeline, S scenarios, T steps, C columns (data-parallel ranks, or stand-ins for several of them).
"""

from __future__ import annotations

import numpy as np

from minder.diagnose.step_traces.graph import Group, StepGraph

__all__ = ["replay"]


def replay(graph: StepGraph, cost_NSTC: np.ndarray) -> np.ndarray:
    """Step times, ST, seconds. cost_NSTC is used up: afterwards it holds the operations' ends.

    An operation starts when all that it waits for has ended; a group starts with its last member, over all columns if it is wide.
    Nothing is delayed before its start: what a real job waits besides is the replay error.
    """
    for group in graph.groups:
        start_STC = _group_start(graph, group, cost_NSTC)
        if start_STC is not None:
            for member in group.members:
                cost_NSTC[member] += start_STC
    end_ST: np.ndarray = cost_NSTC[graph.last[0]].max(axis=-1)
    for index in graph.last[1:]:
        np.maximum(end_ST, cost_NSTC[index].max(axis=-1), out=end_ST)
    return end_ST


def _group_start(graph: StepGraph, group: Group, ends_NSTC: np.ndarray) -> np.ndarray | None:
    """None: at once. What comes before the group holds its end already."""
    sources = {source for member in group.members for source in graph.before[member]}
    if not sources:
        return None
    first, *others = sources
    start_STC: np.ndarray = ends_NSTC[first]
    if others:
        start_STC = np.maximum(start_STC, ends_NSTC[others[0]])
        for other in others[1:]:
            np.maximum(start_STC, ends_NSTC[other], out=start_STC)
    return start_STC.max(axis=-1, keepdims=True) if group.wide else start_STC
