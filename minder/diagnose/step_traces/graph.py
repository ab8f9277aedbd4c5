"""Which operation waits for which, rebuilt from one pipeline's trace (1F1B, with or without virtual stages).

One compute stream and four transfer streams per stage; a tail of gradient and optimiser operations; groups that start together
(arXiv 2505.05713, section 3; the rules of its public artifact as described there, written anew).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

from minder.diagnose.step_traces.schema import DATA_PARALLEL, PEER_OF, is_communication
from minder.diagnose.step_traces.trace import StepTrace
from minder.model.errors import TraceError

__all__ = ["Group", "StepGraph", "build_graph"]

_TAIL = (
    "gc",
    "layernorm-grads-all-reduce",
    "embedding-grads-all-reduce",
    "grads-reduce-scatter",
    "separate-grads-all-reduce",
    "optimizer-clip-main-grad",
    "optimizer",
)


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that start together: one alone, both ends of a transfer, or a collective. wide: over all data-parallel ranks."""

    members: tuple[int, ...]
    wide: bool
    communication: bool


@dataclass(frozen=True, slots=True)
class StepGraph:
    """groups: each after all that it waits for. before[n]: the operations that n waits for. last: they end the step."""

    groups: tuple[Group, ...]
    before: tuple[tuple[int, ...], ...]
    last: tuple[int, ...]


class _Draft:
    """The graph while it is built: operations by stage and kind, in the order of their starts."""

    def __init__(self, trace: StepTrace) -> None:
        self.operations = trace.operations
        self.stages = trace.layout.pp_size
        self.before: list[set[int]] = [set() for _ in trace.operations]
        mean_start_N = trace.start_NTD.mean(axis=(1, 2))
        self._of: dict[tuple[int, str], list[int]] = defaultdict(list)
        for index, operation in enumerate(trace.operations):
            self._of[operation.stage, operation.kind].append(index)
        for indexes in self._of.values():
            indexes.sort(key=lambda index: self.operations[index].seq)
        self.computes = [
            sorted(self.of(stage, "forward-compute") + self.of(stage, "backward-compute"), key=lambda index: float(mean_start_N[index]))
            for stage in range(self.stages)
        ]

    def of(self, stage: int, kind: str) -> list[int]:
        return self._of.get((stage, kind), [])

    def chain(self, indexes: list[int]) -> None:
        for earlier, later in pairwise(indexes):
            self.before[later].add(earlier)


def build_graph(trace: StepTrace) -> StepGraph:
    """Raises TraceError where the trace's operations do not fit together."""
    draft = _Draft(trace)
    for stage in range(draft.stages):
        if not draft.computes[stage]:
            raise TraceError(f"stage {stage} has no forward-compute and no backward-compute: trace every stage")
        draft.chain(draft.computes[stage])
        _add_gathers(draft, stage)
        _add_tail(draft, stage)
    groups = _pair_transfers(draft) + _collectives(draft)
    grouped = {member for group in groups for member in group.members}
    for index, operation in enumerate(draft.operations):
        if index not in grouped:
            groups.append(Group((index,), operation.kind in DATA_PARALLEL, is_communication(operation.kind)))
    optimizers = tuple(index for index, operation in enumerate(draft.operations) if operation.kind == "optimizer")
    before = tuple(tuple(sorted(earlier)) for earlier in draft.before)
    return StepGraph(_in_order(groups, before), before, optimizers or tuple(range(len(draft.operations))))


def _overlapped(draft: _Draft, stage: int) -> bool:
    """The artifact's sign that gradients are reduced while the backward pass still runs."""
    return bool(draft.of(stage, "separate-grads-all-reduce"))


def _add_gathers(draft: _Draft, stage: int) -> None:
    """Parameters before the first forward that uses them: per chunk where they overlap, else all of them."""
    gathers = draft.of(stage, "params-all-gather")
    draft.chain(gathers)
    forwards = [index for index in draft.computes[stage] if draft.operations[index].kind == "forward-compute"]
    for gather in gathers:
        chunk = draft.operations[gather].chunk
        users = [index for index in forwards if draft.operations[index].chunk == chunk] if _overlapped(draft, stage) else forwards
        if users or forwards:
            draft.before[(users or forwards)[0]].add(gather)


def _add_tail(draft: _Draft, stage: int) -> None:
    tail = [draft.computes[stage][-1]]
    for kind in _TAIL:
        indexes = draft.of(stage, kind)
        if kind == "grads-reduce-scatter" and _overlapped(draft, stage):
            _add_overlapped_scatters(draft, stage, indexes)
        else:
            tail += indexes
    draft.chain(tail)


def _add_overlapped_scatters(draft: _Draft, stage: int, scatters: list[int]) -> None:
    draft.chain(scatters)
    backwards = [index for index in draft.computes[stage] if draft.operations[index].kind == "backward-compute"]
    for scatter in scatters:
        same = [index for index in backwards if draft.operations[index].chunk == draft.operations[scatter].chunk]
        draft.before[scatter].add((same or backwards)[-1])
    for closing in (draft.of(stage, "optimizer-clip-main-grad") or draft.of(stage, "optimizer"))[:1]:
        draft.before[closing].update(scatters)


def _pair_transfers(draft: _Draft) -> list[Group]:
    """Sends and receives in their streams, tied to the computes that they serve, and each pair one group."""
    groups: list[Group] = []
    chunks = [operation.model_chunk for operation in draft.operations if operation.kind == "forward-compute"]
    for direction, onward in (("forward", 1), ("backward", -1)):
        # The first chunk in this direction, which receives nothing, and the last one, which sends nothing.
        source, sink = (min(chunks), max(chunks)) if onward == 1 else (max(chunks), min(chunks))
        sends = _serve(draft, f"{direction}-send", sink)
        receives = _serve(draft, f"{direction}-recv", source)
        wanted = {(chunk - onward, microbatch): index for (chunk, microbatch), index in receives.items()}
        for place, send in sends.items():
            if place not in wanted:
                raise TraceError(f"{draft.operations[send]} has no {PEER_OF[f'{direction}-send']} at the other end: trace every stage")
            groups.append(Group((send, wanted.pop(place)), False, True))
        for receive in wanted.values():
            raise TraceError(f"{draft.operations[receive]} has no {direction}-send at the other end: trace every stage")
    return groups


def _serve(draft: _Draft, kind: str, end_chunk: int) -> dict[tuple[int, int], int]:
    """Add the stream of one kind of transfer in every stage; returns (model chunk, microbatch) of its compute: transfer.

    At the model's end a compute has no transfer: either none was recorded, or one that was never launched, which then stands alone.
    """
    compute_kind = kind.split("-")[0] + "-compute"
    found: dict[tuple[int, int], int] = {}
    for stage in range(draft.stages):
        transfers = draft.of(stage, kind)
        computes = [index for index in draft.computes[stage] if draft.operations[index].kind == compute_kind]
        inner = [index for index in computes if draft.operations[index].model_chunk != end_chunk]
        served = computes if len(transfers) == len(computes) else inner
        if len(transfers) != len(served):
            raise TraceError(f"stage {stage} has {len(transfers)} {kind} for {len(inner)} {compute_kind} that need one: trace whole steps")
        draft.chain(transfers)
        for compute, transfer in zip(served, transfers, strict=True):
            _tie(draft, stage, computes, (compute, transfer))
            if draft.operations[compute].model_chunk != end_chunk:
                found[draft.operations[compute].model_chunk, draft.operations[compute].microbatch] = transfer
    return found


def _tie(draft: _Draft, stage: int, computes: list[int], pair: tuple[int, int]) -> None:
    """A send follows its compute. A receive comes before its compute, and is posted when the compute before that is done."""
    compute, transfer = pair
    if draft.operations[transfer].kind.endswith("send"):
        draft.before[transfer].add(compute)
        return
    draft.before[compute].add(transfer)
    place = computes.index(compute)
    if place:
        draft.before[transfer].add(computes[place - 1])
    elif draft.operations[transfer].kind == "backward-recv":
        warm_up = draft.computes[stage][: draft.computes[stage].index(compute)]
        draft.before[transfer].update(warm_up[-2:-1])
    else:
        draft.before[transfer].update(earlier for earlier in draft.before[compute] if draft.operations[earlier].kind == "params-all-gather")


def _collectives(draft: _Draft) -> list[Group]:
    """The clip of gradients spans all stages, shared embeddings the stages that have them. The n-th of each kind belong together."""
    together: dict[tuple[str, int], list[int]] = defaultdict(list)
    for kind in ("optimizer-clip-main-grad", "embedding-grads-all-reduce"):
        for stage in range(draft.stages):
            for place, index in enumerate(draft.of(stage, kind)):
                together[kind, place].append(index)
    return [Group(tuple(members), kind in DATA_PARALLEL, True) for (kind, _), members in together.items()]


def _in_order(groups: list[Group], before: tuple[tuple[int, ...], ...]) -> tuple[Group, ...]:
    """Topological order of the groups. Raises TraceError for a circle."""
    group_of = {member: place for place, group in enumerate(groups) for member in group.members}
    earlier = [{group_of[index] for member in group.members for index in before[member]} - {place} for place, group in enumerate(groups)]
    later: dict[int, list[int]] = defaultdict(list)
    for place, sources in enumerate(earlier):
        for source in sources:
            later[source].append(place)
    waiting = [len(sources) for sources in earlier]
    ready = [place for place, count in enumerate(waiting) if count == 0]
    for place in ready:  # grows while it is walked
        for follower in later[place]:
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    if len(ready) < len(groups):
        stuck = next(group for place, group in enumerate(groups) if waiting[place])
        raise TraceError(f"operation {stuck.members[0]} waits for itself: seq_id and start_ts contradict each other, order by start_ts")
    return tuple(groups[place] for place in ready)
