"""Who waits for whom.

A rank waits for the ranks that have not launched an operation which it has; failing those, for the ranks that entered it with
something else, for ranks without a dump, for ranks whose device has not reached it, and for ranks that are still held by an earlier
operation. Followed from rank to rank across groups, the chain ends at a rank that waits for none: it holds the job up.
After Mycroft (arXiv 2509.03018: shared ranks are followed between groups) and the paper's remark that the reporting rank must not be
taken to be innocent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from minder.diagnose.flight_recorder.channels import counterpart
from minder.diagnose.flight_recorder.mismatch import Mismatch
from minder.diagnose.flight_recorder.progress import DONE, NOT_LAUNCHED, UNKNOWN, Pending, Progress
from minder.diagnose.flight_recorder.records import COLLECTIVE, NEEDS_ALL, SCHEDULED, STARTED, Collection

__all__ = ["Wait", "WaitGraph", "build_waits"]

Why = Literal["not launched", "mismatch", "missing", "queued", "earlier"]


@dataclass(frozen=True, slots=True)
class Wait:
    """`waiter` waits for `blocker` by the operation `op`."""

    waiter: int
    blocker: int
    why: Why
    op: Pending


@dataclass(slots=True)
class WaitGraph:
    """waits[waiter][blocker] is the first reason found, front-most operation first.

    stalls: operations that all ranks launched and none completed, by rank; those too that no majority entered alike.
    """

    waits: dict[int, dict[int, Wait]] = field(default_factory=dict)
    stalls: dict[int, Pending] = field(default_factory=dict)

    def add(self, wait: Wait) -> None:
        self.waits.setdefault(wait.waiter, {}).setdefault(wait.blocker, wait)

    def into(self, rank: int) -> list[Wait]:
        """All waits for a rank."""
        return [blockers[rank] for blockers in self.waits.values() if rank in blockers]


def build_waits(collection: Collection, progress: Progress, mismatches: Iterable[Mismatch]) -> WaitGraph:
    """Edges of all pending operations, and what remains where everybody has launched."""
    graph = WaitGraph()
    differing = {(item.group, item.sequence): item.minority for item in mismatches if item.pending and not item.is_message}
    states = _States(collection, progress)
    for rank, ops in progress.pending.items():
        for op in ops:
            for wait in _hard_waits(states, op, differing):
                if wait.why != "missing" or not states.is_held_by_itself(rank):
                    graph.add(wait)
    for rank, ops in progress.pending.items():
        if ops and not states.is_held_by_itself(rank):
            _add_soft_waits(graph, states, ops[0], differing)
    return graph


@dataclass(frozen=True, slots=True)
class _Levels:
    """Every participant's level at one operation."""

    of: Mapping[int, int]
    absent: Sequence[int]
    unknown: Sequence[int]
    is_done_somewhere: bool


class _States:
    """Levels of all members at one operation, collective or point to point."""

    def __init__(self, collection: Collection, progress: Progress) -> None:
        self.collection = collection
        self.progress = progress
        self._known: dict[tuple[int, int], _Levels] = {}
        self.fronts = {rank: ops[0] for rank, ops in progress.pending.items() if ops}

    def levels(self, op: Pending) -> _Levels:
        """Of a collective all members, the rank itself included; of a send or a receive the other end."""
        if op.kind != COLLECTIVE:
            return self._sorted({} if op.peer is None else {op.peer: counterpart(self.collection, self.progress, op)[0]})
        known = self._known.get((op.group, op.sequence))
        if known is None:
            tracks, ranks = self.progress.tracks[op.group], self.collection.groups[op.group].ranks
            of = {rank: tracks[rank].level(op.sequence) if rank in tracks else UNKNOWN for rank in ranks}
            known = self._known[(op.group, op.sequence)] = self._sorted(of)
        return known

    def _sorted(self, of: Mapping[int, int]) -> _Levels:
        dumps = self.collection.dumps  # one that has no entries, and counters that nothing joins, says as little as none
        unknown = [rank for rank, level in of.items() if level == UNKNOWN and (rank not in dumps or not dumps[rank].entries)]
        absent = [rank for rank, level in of.items() if level == NOT_LAUNCHED]
        return _Levels(of, absent, unknown, DONE in of.values())

    def completed_elsewhere(self, op: Pending) -> bool:
        if op.kind != COLLECTIVE or self.collection.signatures[op.signature].family not in NEEDS_ALL:
            return False
        return self.levels(op).is_done_somewhere

    def is_held_by_itself(self, rank: int) -> bool:
        """Whether its front-most operation is complete elsewhere: it waits for no rank, whatever is not known of operations behind that."""
        return rank in self.fronts and self.completed_elsewhere(self.fronts[rank])

    def same(self, one: Pending, other: Pending) -> bool:
        """Whether two ranks' operations are the two ends of one."""
        if one.group != other.group or (one.kind == COLLECTIVE) != (other.kind == COLLECTIVE):
            return False
        return one.sequence == other.sequence if one.kind == COLLECTIVE else one.peer == other.rank and other.peer == one.rank


def _hard_waits(states: _States, op: Pending, differing: Mapping[tuple[int, int], Sequence[int]]) -> list[Wait]:
    if op.kind == COLLECTIVE and any(group == op.group and sequence < op.sequence for group, sequence in differing):
        return []  # behind a mismatch of its own group everything is its echo
    levels = states.levels(op)
    if levels.absent:
        return [Wait(op.rank, rank, "not launched", op) for rank in levels.absent]
    minority = differing.get((op.group, op.sequence)) if op.kind == COLLECTIVE else None
    if minority is not None:
        return [Wait(op.rank, rank, "mismatch", op) for rank in minority if op.rank not in minority]
    if states.completed_elsewhere(op):
        return []
    return [Wait(op.rank, rank, "missing", op) for rank in levels.unknown]


def _add_soft_waits(graph: WaitGraph, states: _States, op: Pending, differing: Mapping[tuple[int, int], Sequence[int]]) -> None:
    """For a rank's front-most operation, if everybody has launched it."""
    if any(wait.op is op for wait in graph.waits.get(op.rank, {}).values()):
        return
    others = {rank: level for rank, level in states.levels(op).of.items() if rank != op.rank}
    if op.kind == COLLECTIVE and (op.group, op.sequence) in differing:
        if not differing[op.group, op.sequence]:
            graph.stalls[op.rank] = op
        return
    if states.progress.uses_started and op.state == STARTED:
        queued = [rank for rank, level in others.items() if level == SCHEDULED]
        for rank in queued:
            graph.add(Wait(op.rank, rank, "queued", op))
        if queued:
            return
    earlier = []
    for rank, level in others.items():
        front = states.fronts.get(rank)
        if level in (SCHEDULED, STARTED) and front is not None and not states.same(front, op):
            earlier.append(rank)
    for rank in earlier:
        graph.add(Wait(op.rank, rank, "earlier", op))
    if not earlier:
        graph.stalls[op.rank] = op
