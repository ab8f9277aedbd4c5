"""From a collection of dumps to the ranks that hold the job up, with the reason and how sure that is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from minder.diagnose.flight_recorder.culprits import break_cycle, final_sets, is_deadlock
from minder.diagnose.flight_recorder.lateness import Late, late_in_last, stragglers
from minder.diagnose.flight_recorder.mismatch import Mismatch, find_mismatches
from minder.diagnose.flight_recorder.progress import Progress, Track, follow
from minder.diagnose.flight_recorder.records import COLLECTIVE, Collection, RankDump
from minder.diagnose.flight_recorder.waits import Wait, WaitGraph, build_waits

__all__ = ["Analysis", "Cause", "Culprit", "analyse"]

_SHOWN_RANKS = 8

Cause = Literal["not launched", "launched late", "mismatch", "dead", "none", "unknown"]


@dataclass(frozen=True, slots=True)
class Culprit:
    """One rank to blame; `group` is where that shows most. Counters are None where the dumps do not tell."""

    rank: int
    cause: Cause
    confidence: float
    group: int | None
    last_enqueued: int | None = None
    last_completed: int | None = None
    peers_enqueued: int | None = None
    peers_completed: int | None = None
    since_ns: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class Analysis:
    """The conclusion. `culprits` front-most first; `detail` says it in words."""

    culprits: tuple[Culprit, ...]
    cause: Cause
    confidence: float
    mismatches: tuple[Mismatch, ...] = ()
    detail: str = ""
    waiting: frozenset[int] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True)
class _Case:
    collection: Collection
    progress: Progress
    mismatches: Sequence[Mismatch]
    graph: WaitGraph


def analyse(collection: Collection) -> Analysis:
    """Who holds the job up, according to one collection of dumps."""
    if not collection.dumps or 2 * len(collection.missing) > len(collection.world):
        missing = f"{len(collection.missing)} of {len(collection.world)} ranks have no dump"
        return Analysis((), "unknown", 0.0, detail=f"{missing}: too little to tell who waits for whom")
    progress = follow(collection)
    mismatches = find_mismatches(collection, progress)
    case = _Case(collection, progress, mismatches, build_waits(collection, progress, mismatches))
    ends = _ends(case)
    blamed, undecided, locked = _without_needless_missing(case, ends.blamed), ends.undecided, ends.locked
    old = sorted(set(blamed) & collection.stale)
    blamed = {rank: waits for rank, waits in blamed.items() if rank not in collection.stale}
    if old and not blamed:
        names = ", ".join(f"rank {rank}" for rank in old[:8])
        detail = f"the chains end at {names}, whose dump is older than those of its peers: collect all of them again"
        return Analysis((), "unknown", 0.3, tuple(mismatches), detail, frozenset(case.graph.waits))
    if blamed:
        return _conclude(case, blamed, undecided)
    return _no_rank_waited_for(case, undecided, locked)


class _Ends(NamedTuple):
    """Ranks at the ends of the chains of waits. blamed: with the waits for them. undecided: where none can be named; locked: those of
    them that wait for one another in collectives of which each comes first."""

    blamed: dict[int, list[Wait]]
    undecided: list[int]
    locked: list[int]


def _ends(case: _Case) -> _Ends:
    blamed: dict[int, list[Wait]] = {}
    undecided: list[int] = []
    locked: list[int] = []
    for ranks in final_sets(case.graph):
        named = ranks if len(ranks) == 1 else break_cycle(case.collection, case.progress, case.graph, ranks)
        for rank in named:
            waits = case.graph.into(rank)
            if rank in case.graph.stalls and not _lags_in_its_stall(case, rank, waits):
                undecided.append(rank)
            else:
                blamed[rank] = waits
        undecided += [] if named else ranks
        locked += ranks if not named and is_deadlock(case.progress, case.graph, ranks) else []
    return _Ends(blamed, undecided, locked)


def _lags_in_its_stall(case: _Case, rank: int, waits: Sequence[Wait]) -> bool:
    """Of an operation that all launched and none completed: whether most of its participants went on and only this rank did not."""
    stall = case.graph.stalls[rank]
    fellows = set(case.collection.groups[stall.group].ranks) - {rank} if stall.kind == COLLECTIVE else {stall.peer}
    ahead = {wait.waiter for wait in waits if wait.why in ("not launched", "mismatch", "queued")} & fellows
    return 2 * len(ahead) >= len(fellows) and len(ahead) > 0


def _without_needless_missing(case: _Case, blamed: dict[int, list[Wait]]) -> dict[int, list[Wait]]:
    """A rank without a dump is blamed if another rank waits for it first of all; where all that wait for it wait for a rank that is known
    to be late, its dump may simply be lost."""
    dumps = case.collection.dumps
    needed = {}
    for rank, waits in blamed.items():
        fronts = [wait for wait in waits if case.progress.pending[wait.waiter][0] is wait.op]
        is_known = rank in dumps and any(wait.why != "missing" for wait in waits)
        if is_known or fronts or not any(other in dumps for other in blamed):
            needed[rank] = waits
    return needed


def _conclude(case: _Case, blamed: dict[int, list[Wait]], undecided: Sequence[int]) -> Analysis:
    culprits = sorted((_culprit(case, rank, waits) for rank, waits in blamed.items()), key=lambda one: (one.since_ns, one.rank))
    if _first_arrivals_only(case, culprits):
        return Analysis((), "none", 0.4, tuple(case.mismatches), _say_ahead(case))
    confidence = min(culprit.confidence for culprit in culprits) * (0.8 if undecided else 1.0)
    if any(rank not in blamed for rank in case.collection.missing):
        confidence *= 0.9
    first = culprits[0]
    waiting = frozenset(case.graph.waits)
    held = "1 rank waits" if len(waiting) == 1 else f"{len(waiting)} ranks wait"
    detail = f"{held}; the chains end at {', '.join(f'rank {one.rank} ({one.cause})' for one in culprits[:8])}"
    return Analysis(tuple(culprits), first.cause, round(confidence, 2), tuple(case.mismatches), detail, waiting)


def _first_arrivals_only(case: _Case, culprits: Sequence[Culprit]) -> bool:
    """Most ranks idle just before a collective that few have entered: a moment of a healthy job."""
    waits = [wait for blockers in case.graph.waits.values() for wait in blockers.values()]
    idle = all(not case.progress.pending.get(one.rank) and one.cause == "not launched" for one in culprits)
    waiters = {wait.waiter for wait in waits}
    by_one = all((one.peers_enqueued or 0) - (one.last_enqueued or 0) <= 1 for one in culprits)
    return idle and (by_one or len(waiters) == 1) and len(culprits) > max(len(waiters), 1)


def _say_ahead(case: _Case) -> str:
    """What each rank has launched, and that a look a moment later shows what it is."""
    fronts = {rank: case.progress.pending[rank][0] for rank in sorted(case.graph.waits) if case.progress.pending.get(rank)}
    launched = []
    for rank, op in list(fronts.items())[:_SHOWN_RANKS]:
        group = case.collection.groups[op.group].label
        launched.append(f"rank {rank} has launched {case.collection.signatures[op.signature].name} {op.sequence} of {group}")
    more = f" and {len(fronts) - _SHOWN_RANKS} more ranks wait" if len(fronts) > _SHOWN_RANKS else ""
    meaning = "no hang yet, or, if it stays so, the program calls it on too few ranks"
    return f"{'; '.join(launched)}{more}, and most ranks are idle before it: {meaning}"


def _culprit(case: _Case, rank: int, waits: Sequence[Wait]) -> Culprit:
    """`group` is the one in which the rank is furthest behind: where an operator sees it at once."""
    groups = [number for number, group in enumerate(case.collection.groups) if rank in group.ranks and len(group.ranks) > 1]
    behind = {number: _behind(case, rank, number) for number in groups}
    first = waits[0].op.group
    group = max(groups or [first], key=lambda number: (behind.get(number) or 0, number == first))
    since = min((wait.op.created_ns for wait in waits if wait.op.created_ns), default=0)
    cause = _cause(case, rank, waits)
    confidence = _confidence(case, rank, cause, waits)
    return Culprit(rank, cause, confidence, group, *_counters(case, rank, group), since, len({wait.waiter for wait in waits}))


def _cause(case: _Case, rank: int, waits: Sequence[Wait]) -> Cause:
    if rank not in case.collection.dumps:
        return "dead"
    if any(wait.why == "mismatch" for wait in waits):
        return "mismatch"
    return "not launched"


def _uses_p2p(case: _Case, group: int) -> bool:
    tracks = case.progress.tracks[group].values()
    pending = [op for rank in case.progress.tracks[group] for op in case.progress.pending.get(rank, ()) if op.group == group]
    return bool(pending) and all(op.kind != COLLECTIVE for op in pending) and any(track.p2p_enqueued for track in tracks)


class _Counters(NamedTuple):
    """The rank's and its peers' last enqueued and completed, in the kind of operation that the group waits in."""

    enqueued: int | None
    completed: int | None
    peers_enqueued: int | None
    peers_completed: int | None


def _counters(case: _Case, rank: int, group: int) -> _Counters:
    p2p = _uses_p2p(case, group)
    own: tuple[int | None, int | None] = (None, None)
    enqueued: list[int] = []
    completed: list[int] = []
    for member, track in case.progress.tracks[group].items():
        pair = (track.p2p_enqueued, track.p2p_completed) if p2p else (track.enqueued, track.completed)
        if member == rank:
            own = pair
        else:
            enqueued += [pair[0]] if pair[0] is not None else []
            completed += [pair[1]] if pair[1] is not None else []
    return _Counters(*own, max(enqueued, default=None), max(completed, default=None))


def _behind(case: _Case, rank: int, group: int) -> int | None:
    """By how many operations the rank is behind its peers in a group."""
    found = _counters(case, rank, group)
    return None if found.enqueued is None or found.peers_enqueued is None else found.peers_enqueued - found.enqueued


def _confidence(case: _Case, rank: int, cause: Cause, waits: Sequence[Wait]) -> float:
    """Near 1 only where several others launched what this rank alone did not, and nothing else explains it."""
    waiters = {wait.waiter for wait in waits}
    groups = {wait.op.group for wait in waits}
    if cause == "dead":
        return 0.85 if len(waiters) > 1 and len(groups) > 1 else 0.75
    if cause == "mismatch":
        return 0.9 if len(waiters) > 2 else 0.8
    surest = 0.0
    same = Counter((wait.op.group, wait.op.sequence) for wait in waits)
    for wait in waits:
        members = case.collection.groups[wait.op.group].ranks if wait.op.kind == COLLECTIVE else (rank, wait.waiter)
        there = same[wait.op.group, wait.op.sequence]
        share = there / max(len(members) - 1, 1)
        outnumbered = 2 * there > len(members) or len(members) == 2
        surest = max(surest, (0.75 if len(members) == 2 else 0.6 + 0.35 * share) if outnumbered else 0.5)
    if surest > 0.5:
        surest += 0.05 * (len(groups) > 1) + 0.05 * (len(waiters) > 2)
    if rank in case.graph.stalls:
        surest = min(surest, 0.7)
    return min(surest, 0.97)


def _no_rank_waited_for(case: _Case, undecided: Sequence[int], locked: Sequence[int]) -> Analysis:
    """No chain ends at a rank: late ranks, a mismatch that is complete or a tie, a deadlock, a stall in the network, or nothing at all."""
    mismatches = tuple(case.mismatches)
    for mismatch in sorted(mismatches, key=lambda item: not item.pending):
        culprits = tuple(_late_culprit(case, Late(rank, mismatch.group, 0.0, 0.0), "mismatch", 0.7) for rank in mismatch.minority)
        if culprits:
            return Analysis(culprits, "mismatch", 0.7, mismatches, "ranks entered one collective with something else")
    if any(mismatch.pending for mismatch in mismatches):
        return Analysis((), "unknown", 0.3, mismatches, "ranks differ in one collective, and no side is in the majority")
    if locked:
        return Analysis((), "mismatch", 0.7, mismatches, _say_deadlock(case, locked), frozenset(case.graph.waits))
    late = late_in_last(case.collection, case.progress, case.graph.stalls)
    if not late and not undecided:
        late = stragglers(case.collection, case.progress)
    if late:
        named = {one.rank: one for one in late}
        culprits = tuple(_late_culprit(case, one, "launched late", 0.7) for one in named.values())
        detail = f"rank {late[0].rank} launches {late[0].seconds:.2f} s after the last of its peers"
        return Analysis(culprits, "launched late", 0.7, mismatches, detail)
    ring = [rank for rank in undecided if rank in case.graph.waits]
    if ring:
        names = ", ".join(f"rank {rank}" for rank in ring[:8]) + (f" and {len(ring) - 8} more" if len(ring) > 8 else "")
        detail = f"{names} wait for one another, and the dumps do not tell which of them is at fault: see where they stand in the program"
        return Analysis((), "unknown", 0.3, mismatches, detail, frozenset(case.graph.waits))
    whys = {wait.why for blockers in case.graph.waits.values() for wait in blockers.values()}
    if whys - {"earlier"}:
        detail = "all ranks launched, none completed, others wait behind: the network or the device, not a rank that these dumps can name"
        return Analysis((), "unknown", 0.3, mismatches, detail, frozenset(case.graph.waits))
    if any(case.progress.pending.values()):
        return Analysis((), "none", 0.6, mismatches, "in flight with the same sequence everywhere")
    waiting = [rank for rank, dump in case.collection.dumps.items() if not dump.entries and _counts_more_launched(dump)]
    if waiting:
        return _by_counters(case, waiting)
    entries = any(dump.entries or dump.status for dump in case.collection.dumps.values())
    return Analysis((), "none" if entries else "unknown", 0.9 if entries else 0.0, mismatches, "no rank waits in a collective")


def _counts_more_launched(dump: RankDump) -> bool:
    return any(status.enqueued > status.completed for status in dump.status.values())


def _by_counters(case: _Case, waiting: Sequence[int]) -> Analysis:
    """Dumps without entries: who has launched less than most of a group, where the counters can be joined to it. Which operation it is
    that they wait in, and since when, they do not say."""
    behind = {
        rank: number
        for number, members in enumerate(case.progress.tracks)
        for rank, track in members.items()
        if not len(track.rows) and track.enqueued is not None and 2 * _ahead_of(track, members) > len(members)
    }
    held = f"{len(waiting)} of {len(case.collection.dumps)} ranks count an operation that is launched and not complete"
    if not behind:
        return Analysis((), "unknown", 0.0, detail=f"{held}, and without entries nothing says in which group: dump with entries")
    culprits = tuple(_late_culprit(case, Late(rank, number, 0.0, 0.0), "not launched", 0.6) for rank, number in sorted(behind.items()))
    names = ", ".join(f"rank {one.rank} ({one.last_enqueued} of {one.peers_enqueued})" for one in culprits[:_SHOWN_RANKS])
    return Analysis(culprits, "not launched", 0.6, detail=f"{held}; by their counters alone {names} has launched less")


def _ahead_of(track: Track, members: Mapping[int, Track]) -> int:
    """How many members have launched what this one has not, and wait in it."""
    own = track.enqueued or 0
    return sum((other.enqueued or 0) > own and (other.completed or 0) < (other.enqueued or 0) for other in members.values())


def _say_deadlock(case: _Case, ranks: Sequence[int]) -> str:
    places: dict[str, list[int]] = {}
    for rank in ranks:
        front = case.progress.pending[rank][0]
        operation = case.collection.signatures[front.signature].family
        places.setdefault(f"{operation} {front.sequence} of group {case.collection.groups[front.group].name}", []).append(rank)
    stands = "; ".join(f"{', '.join(map(str, members[:8]))} in {place}" for place, members in list(places.items())[:4])
    return f"ranks wait for one another in different collectives, as the program called them: {stands}"


def _late_culprit(case: _Case, late: Late, cause: Cause, confidence: float) -> Culprit:
    return Culprit(late.rank, cause, confidence, late.group, *_counters(case, late.rank, late.group))
