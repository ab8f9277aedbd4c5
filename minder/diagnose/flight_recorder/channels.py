"""Point to point: whether the other end of a send or a receive has been launched.

Sequence ids pair the two ends where only these two ranks talk in the group, as in a pipeline pair. Where a rank has several peers
in one group the ids of the two ends drift apart, and operations pair by their order along one direction between two ranks.
"""

from __future__ import annotations

import numpy as np

from minder.diagnose.flight_recorder.progress import DONE, NOT_LAUNCHED, UNKNOWN, Pending, Progress, Track
from minder.diagnose.flight_recorder.records import COLLECTIVE, COMPLETED, RECEIVE, SCHEDULED, SEND, Collection, RankDump

__all__ = ["counterpart"]


def counterpart(collection: Collection, progress: Progress, op: Pending) -> tuple[int, int | None]:
    """(level, signature) of the operation at `op.peer` that `op` waits for; UNKNOWN where the dumps cannot tell."""
    peer = op.peer
    if peer is None or peer not in collection.dumps:
        return UNKNOWN, None
    mine, theirs = progress.tracks[op.group][op.rank], progress.tracks[op.group].get(peer)
    if theirs is None:
        return UNKNOWN, None
    ranks = collection.groups[op.group].ranks
    ours, others = collection.dumps[op.rank], collection.dumps[peer]
    own_peer, other_peer = ranks.index(peer), ranks.index(op.rank)
    if _only_peer(ours, mine, own_peer) and _only_peer(others, theirs, other_peer):
        return _by_sequence(others, theirs, op)
    here = _direction(ours, mine, op.kind, own_peer)
    there = _direction(others, theirs, SEND if op.kind == RECEIVE else RECEIVE, other_peer)
    return _by_order(ours, here, others, there, op)


def _only_peer(dump: RankDump, track: Track, peer: int) -> bool:
    rows = track.rows[np.isin(dump.kind_E[track.rows], (SEND, RECEIVE))]
    return bool((dump.peer_E[rows] == peer).all())


def _by_sequence(dump: RankDump, track: Track, op: Pending) -> tuple[int, int | None]:
    if track.p2p_enqueued is None:
        return UNKNOWN, None
    if op.sequence > track.p2p_enqueued:
        return NOT_LAUNCHED, None
    wanted = SEND if op.kind == RECEIVE else RECEIVE
    rows = track.rows[(dump.p2p_E[track.rows] == op.sequence) & (dump.kind_E[track.rows] == wanted)]
    if len(rows) == 0:
        other = track.rows[(dump.p2p_E[track.rows] == op.sequence) & (dump.kind_E[track.rows] != COLLECTIVE)]
        return (NOT_LAUNCHED if len(other) else DONE), None
    return int(dump.state_E[rows[0]]), int(dump.signature_E[rows[0]])


def _direction(dump: RankDump, track: Track, kind: int, peer: int) -> np.ndarray:
    rows: np.ndarray = track.rows[(dump.kind_E[track.rows] == kind) & (dump.peer_E[track.rows] == peer)]
    return rows


def _by_order(ours: RankDump, here: np.ndarray, others: RankDump, there: np.ndarray, op: Pending) -> tuple[int, int | None]:
    """Count from the first operation where both rings go back to it, else from the last completed one."""
    place = int(np.searchsorted(here, op.order))
    if _whole(ours) and _whole(others):
        if place >= len(there):
            return NOT_LAUNCHED, None
        row = there[place]
        return int(others.state_E[row]), int(others.signature_E[row])
    waiting = int((ours.state_E[here[:place]] != COMPLETED).sum())
    unfinished = there[others.state_E[there] != COMPLETED]
    if waiting >= len(unfinished):
        return NOT_LAUNCHED, None
    return SCHEDULED, int(others.signature_E[unfinished[waiting]])


def _whole(dump: RankDump) -> bool:
    return dump.is_from_the_start and int(dump.record_E[-1]) == dump.entries - 1
