"""The ends of the chains: strongly connected sets of ranks that others wait for and that wait for none outside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minder.diagnose.flight_recorder.progress import Pending, Progress
from minder.diagnose.flight_recorder.records import COLLECTIVE, Collection
from minder.diagnose.flight_recorder.waits import Wait, WaitGraph

__all__ = ["break_cycle", "final_sets", "is_deadlock"]


def final_sets(graph: WaitGraph) -> list[list[int]]:
    """Strongly connected sets with a rank waiting outside or inside and no wait that leaves them (Tarjan, without recursion)."""
    nodes = sorted(set(graph.waits) | {blocker for blockers in graph.waits.values() for blocker in blockers})
    edges = {node: sorted(graph.waits.get(node, ())) for node in nodes}
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in nodes:
        if root in order:
            continue
        work = [(root, 0)]
        while work:
            node, at = work.pop()
            if node not in order:
                order[node] = low[node] = len(order)
                stack.append(node)
                on_stack.add(node)
            for place in range(at, len(edges[node])):
                target = edges[node][place]
                if target not in order:
                    work += [(node, place), (target, 0)]
                    break
                if target in on_stack:
                    low[node] = min(low[node], low[target])
            else:
                if low[node] == order[node]:
                    found.append(_pop_set(stack, on_stack, node))
    return [sorted(ranks) for ranks in found if _is_final(ranks, edges) and (len(ranks) > 1 or graph.into(ranks[0]))]


def _pop_set(stack: list[int], on_stack: set[int], node: int) -> list[int]:
    ranks = []
    while True:
        rank = stack.pop()
        on_stack.discard(rank)
        ranks.append(rank)
        if rank == node:
            return ranks


def _is_final(ranks: Sequence[int], edges: dict[int, list[int]]) -> bool:
    return all(target in ranks for rank in ranks for target in edges[rank])


def break_cycle(collection: Collection, progress: Progress, graph: WaitGraph, ranks: Sequence[int]) -> list[int]:
    """Who of a set that waits for itself is to blame; empty where the dumps do not tell.

    A receive that was posted early holds no rank: where a rank's own history shows that it goes on while such an operation is open,
    the wait is dropped. A rank that then waits for none is to blame. A ring of waits that remains is closed by each of its ranks alike,
    however many wait for one of them: a call that one rank left out or made twice looks the same from both ends.
    """
    inside = [wait for rank in ranks for blocker, wait in graph.waits.get(rank, {}).items() if blocker in ranks]
    held = WaitGraph()
    for wait in inside:
        wanted = [other.op for other in inside if other.blocker == wait.waiter]
        if wait.op.kind == COLLECTIVE or not any(_goes_on(collection, progress, wait, op) for op in wanted):
            held.add(wait)
    return sorted({wait.blocker for wait in inside} - set(held.waits))


def is_deadlock(progress: Progress, graph: WaitGraph, ranks: Sequence[int]) -> bool:
    """Whether each of these ranks stands in a collective that another of them will only launch after its own: no machine makes them call
    in different orders, the program does."""
    fronts = {rank: progress.pending[rank][0] for rank in ranks if progress.pending.get(rank)}
    if len(fronts) < len(ranks) or any(op.kind != COLLECTIVE for op in fronts.values()):
        return False
    inside = {rank: [wait for blocker, wait in graph.waits.get(rank, {}).items() if blocker in ranks] for rank in ranks}
    return all(any(wait.why == "not launched" and wait.op is fronts[rank] for wait in waits) for rank, waits in inside.items())


def _goes_on(collection: Collection, progress: Progress, wait: Wait, wanted: Pending) -> bool:
    """Whether wait.waiter used to launch what is wanted of it before operations like wait.op were complete."""
    dump = collection.dumps.get(wait.waiter)
    if dump is None:
        return False
    blocking = _like(progress, dump.kind_E, dump.peer_E, wait.op, wait.waiter)
    peer = collection.groups[wanted.group].ranks.index(wanted.rank)
    kind = {1: 2, 2: 1}.get(wanted.kind, wanted.kind)
    track = progress.tracks[wanted.group].get(wait.waiter)
    if track is None:
        return False
    rows = track.rows
    launched = rows[(dump.kind_E[rows] == kind) & ((dump.peer_E[rows] == peer) | (kind == 0))]
    open_still = []
    for row in launched.tolist():
        place = int(np.searchsorted(blocking, row)) - 1
        if place >= 0 and dump.completed_E[blocking[place]] > 0:
            open_still.append(dump.completed_E[blocking[place]] > dump.created_E[row])
    return len(open_still) >= 3 and sum(open_still) >= 0.8 * len(open_still)


def _like(progress: Progress, kind_E: np.ndarray, peer_E: np.ndarray, op: Pending, rank: int) -> np.ndarray:
    rows = progress.tracks[op.group][rank].rows
    alike: np.ndarray = rows[(kind_E[rows] == op.kind) & (peer_E[rows] == peer_E[op.order])]
    return alike
