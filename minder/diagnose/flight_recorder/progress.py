"""How far each rank got in each process group: what it enqueued, what it completed, what it still waits for.

A group's collectives complete in order on one stream, so everything up to the last completed one is complete, whatever the state
of its entry says; entries that the ring has overwritten were the oldest, and are complete too. A rank's own counters (pg_status)
are keyed by a number of its own: entries join them, and where a rank has none left, the number that its peers use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from minder.diagnose.flight_recorder.groups import groups_of_ranks
from minder.diagnose.flight_recorder.records import (
    COALESCED,
    COLLECTIVE,
    COMPLETED,
    NEEDS_ALL,
    SCHEDULED,
    STARTED,
    Collection,
    RankDump,
    Status,
)

__all__ = ["DONE", "NOT_LAUNCHED", "UNKNOWN", "Pending", "Progress", "Track", "follow"]

UNKNOWN, NOT_LAUNCHED, DONE = -1, 0, COMPLETED


@dataclass(frozen=True, slots=True)
class Pending:
    """An operation that a rank has enqueued and that is not complete. created_ns is 0 if not noted; order: its place on the rank."""

    rank: int
    group: int
    kind: int
    sequence: int
    peer: int | None
    state: int
    created_ns: int
    order: int
    signature: int


@dataclass(slots=True)
class Track:
    """One rank in one group. Numbers are sequence ids of collectives and of point-to-point operations; None: it cannot be known."""

    enqueued: int | None
    completed: int | None
    p2p_enqueued: int | None
    p2p_completed: int | None
    states: dict[int, int] = field(default_factory=dict)  # sequence id of a collective to its state
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # the rank's entries in this group

    def level(self, sequence: int) -> int:
        """Of a collective: UNKNOWN, NOT_LAUNCHED, SCHEDULED, STARTED or DONE."""
        if self.enqueued is None:
            return UNKNOWN
        if sequence > self.enqueued:
            return NOT_LAUNCHED
        if self.completed is not None and sequence <= self.completed:
            return DONE
        return self.states.get(sequence, SCHEDULED)


@dataclass(frozen=True, slots=True)
class Progress:
    """tracks[group][rank] for every rank with a dump; pending by rank, in the order in which it enqueued them."""

    tracks: Sequence[Mapping[int, Track]]
    pending: Mapping[int, Sequence[Pending]]
    uses_started: bool


def follow(collection: Collection) -> Progress:
    """Work out every rank's place in every group."""
    if isinstance(collection.followed, Progress):
        return collection.followed
    index = groups_of_ranks(collection.groups)
    votes = _local_ids(collection, index)
    tracks: list[dict[int, Track]] = [{} for _ in collection.groups]
    pending: dict[int, list[Pending]] = {}
    started = False
    memberships: dict[int, list[int]] = {rank: [] for rank in collection.dumps}
    for number, group in enumerate(collection.groups):
        for rank in group.ranks:
            if rank in memberships:
                memberships[rank].append(number)
    for rank, dump in collection.dumps.items():
        group_E = _group_numbers(dump, index)
        names = {index[(name, rank)]: name for name in dump.names if (name, rank) in index}
        started = started or bool((dump.state_E == STARTED).any() or (dump.started_E > 0).any())
        for number in memberships[rank]:
            rows = np.flatnonzero(group_E == number)
            tracks[number][rank] = _track(dump, rows, _status(dump, names.get(number), votes[number], len(rows)))
        pending[rank] = _pending(dump, group_E, tracks, collection)
    _settle_units(tracks)
    _drop_wrong_guesses(collection, tracks, memberships)
    return Progress(tracks, pending, started)


def _group_numbers(dump: RankDump, index: Mapping[tuple[str, int], int]) -> np.ndarray:
    by_name = np.array([index.get((name, dump.rank), -1) for name in dump.names] or [-1], np.int64)
    return by_name[dump.name_E] if dump.entries else np.empty(0, np.int64)


def _local_ids(collection: Collection, index: Mapping[tuple[str, int], int]) -> list[str | None]:
    """The rank-local id that most members of a group have for it. Where no dump has entries, that of the only group which all of them
    know and count."""
    votes: list[Counter[str]] = [Counter() for _ in collection.groups]
    for rank, dump in collection.dumps.items():
        for name, local in dump.local_ids.items():
            if (name, rank) in index:
                votes[index[(name, rank)]][local] += 1
    counted = {local for dump in collection.dumps.values() for local in dump.status}
    if len(collection.groups) == len(counted) == 1 and not any(dump.entries for dump in collection.dumps.values()):
        votes[0].update(counted)
    return [vote.most_common(1)[0][0] if vote else None for vote in votes]


def _status(dump: RankDump, name: str | None, vote: str | None, entries: int) -> Status | None:
    if dump.counts_operations:
        return None
    local = dump.local_ids.get(name) if name is not None else None
    if local is None and entries == 0 and vote is not None and vote not in dump.local_ids.values():
        local = vote
    if local is None or not dump.status:
        return None
    return dump.status.get(local, Status(0, 0))  # counters of other groups and none of this one: it was never used


def _track(dump: RankDump, rows: np.ndarray, status: Status | None) -> Track:
    """Of a rank's entries in one group, and its counters of it if they can be joined."""
    if len(rows) == 0:
        if status is not None:
            return Track(status.enqueued, status.completed, status.enqueued, status.completed)
        lost = dump.entries > 0 and not dump.is_from_the_start
        is_unused = not lost and (dump.counts_operations or not dump.status)
        return Track(0, 0, 0, 0) if is_unused else Track(None, None, None, None)
    kinds, states = dump.kind_E[rows], dump.state_E[rows]
    sequences, p2p = dump.sequence_E[rows], dump.p2p_E[rows]
    is_collective = kinds == COLLECTIVE
    done = states == COMPLETED
    track = Track(
        int(sequences.max()), _latest(sequences[is_collective & done]), int(p2p.max()), _latest(p2p[~is_collective & done]),
        dict(zip(sequences[is_collective].tolist(), states[is_collective].tolist(), strict=True)), rows,
    )  # fmt: skip
    if status is not None:
        _join(track, status)
    if track.completed is None:
        first = sequences[is_collective].min() if is_collective.any() else track.enqueued + 1  # type: ignore[operator]
        track.completed = int(first) - 1
    if track.p2p_completed is None:
        track.p2p_completed = int(p2p[~is_collective].min() - 1) if (~is_collective).any() else track.p2p_enqueued
    return track


def _join(track: Track, status: Status) -> None:
    """The counters are of the kind of operation that came last: the kind whose numbers they are near."""
    if abs(status.enqueued - (track.p2p_enqueued or 0)) < abs(status.enqueued - (track.enqueued or 0)):
        track.p2p_enqueued = max(track.p2p_enqueued or 0, status.enqueued)
        if status.completed <= track.p2p_enqueued:
            track.p2p_completed = max(track.p2p_completed or 0, status.completed)
    else:
        track.enqueued = max(track.enqueued or 0, status.enqueued)
        if status.completed <= track.enqueued:
            track.completed = max(track.completed or 0, status.completed)


def _latest(values: np.ndarray) -> int | None:
    return int(values.max()) if len(values) else None


def _pending(dump: RankDump, group_E: np.ndarray, tracks: Sequence[Mapping[int, Track]], collection: Collection) -> list[Pending]:
    """What the rank waits for. The members of a coalesced batch have the state of the batch."""
    batches = {(int(group_E[row]), int(dump.p2p_E[row])): int(dump.state_E[row]) for row in np.flatnonzero(dump.kind_E == COALESCED)}
    found = []
    for row in np.flatnonzero((dump.state_E != COMPLETED) & (group_E >= 0)).tolist():
        number, kind = int(group_E[row]), int(dump.kind_E[row])
        track, state = tracks[number][dump.rank], int(dump.state_E[row])
        if kind == COALESCED:
            continue
        if kind == COLLECTIVE:
            sequence, done = int(dump.sequence_E[row]), track.completed
        else:
            sequence, done = int(dump.p2p_E[row]), None
            state = batches.get((number, sequence), state)
            done = track.p2p_completed if len(collection.groups[number].ranks) == 2 else None
        if state == COMPLETED or (done is not None and sequence <= done):
            continue
        ranks, peer = collection.groups[number].ranks, int(dump.peer_E[row])
        other = ranks[peer] if 0 <= peer < len(ranks) else None
        found.append(
            Pending(
                dump.rank, number, kind, sequence, None if other == dump.rank else other, state,
                int(dump.created_E[row]), row, int(dump.signature_E[row]),
            )
        )  # fmt: skip
    return found


def _drop_wrong_guesses(collection: Collection, tracks: Sequence[dict[int, Track]], memberships: Mapping[int, Sequence[int]]) -> None:
    """The counters of a rank without entries are joined by its peers' numbers, which is a guess. Where one of them cannot be true, as
    the peers completed with the rank what it never launched, the numbers are its own, and none of its counters can be joined."""
    for rank, dump in collection.dumps.items():
        if not dump.entries and dump.status and any(_is_impossible(collection, tracks[number], rank) for number in memberships[rank]):
            for number in memberships[rank]:
                tracks[number][rank] = Track(None, None, None, None)


def _is_impossible(collection: Collection, members: Mapping[int, Track], rank: int) -> bool:
    own = members[rank]
    peers = [(collection.dumps[other], track) for other, track in members.items() if len(track.rows)]
    if own.enqueued is None or own.completed is None or not peers:
        return False
    used = {collection.signatures[index].family for dump, track in peers for index in np.unique(dump.signature_E[track.rows]).tolist()}
    if not used <= NEEDS_ALL:
        return False
    return own.enqueued < max(track.completed or 0 for _, track in peers) or own.completed > min(track.enqueued or 0 for _, track in peers)


def _settle_units(tracks: Sequence[Mapping[int, Track]]) -> None:
    """A rank without entries has counters of one kind or the other: of the kind whose numbers its peers are near."""
    for members in tracks:
        with_entries = [track for track in members.values() if len(track.rows)]
        for track in members.values():
            if len(track.rows) or not with_entries or not track.enqueued:
                continue
            far = min(abs(track.enqueued - (peer.enqueued or 0)) for peer in with_entries)
            far_p2p = min(abs(track.enqueued - (peer.p2p_enqueued or 0)) for peer in with_entries)
            if far_p2p < far:
                track.enqueued = track.completed = None
            else:
                track.p2p_enqueued = track.p2p_completed = None
