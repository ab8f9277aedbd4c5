"""Ranks that launch late: everybody waits for them in every collective, or did so in the last one.

Wall clocks of machines differ, so a launch is timed against the moment when the same rank saw the same collective complete, which
all ranks see together; where the recorder notes no completion (gloo, NCCL without timing), against the rank's usual distance from
its peers. A rank is a straggler if the others spend a tenth or more of their time waiting for it alone, and it stands out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minder.diagnose.flight_recorder.progress import Pending, Progress
from minder.diagnose.flight_recorder.records import COALESCED, COLLECTIVE, RECEIVE, SEND, Collection

__all__ = ["Late", "late_in_last", "stragglers"]

_LEAST_OPERATIONS = 8
_MOST_OPERATIONS = 512
_SHARE = 0.1
_TIMES_THE_NEXT = 4.0
_LEAST_S = 0.002  # a launch is noted on the host, which runs ahead of its device by more than this
_LATE_S = 1.0  # Mycroft's rule for one operation: a second away from the rest


@dataclass(frozen=True, slots=True)
class Late:
    """A rank that was late in a group: by how many seconds (median, or in the one operation), and the share of time it cost."""

    rank: int
    group: int
    seconds: float
    share: float


def stragglers(collection: Collection, progress: Progress) -> list[Late]:
    """The rank that is persistently late, or none where several could be it.

    Groups whose ranks do different work (pipeline stages) do not count. A rank that is late in one group because it waits for the
    late one in another is a victim; of several late ranks the busy one has waited least, by a fifth or more. One that exchanges
    messages with a rank whose dump is missing may be that one's victim, and is not named.
    """
    found = []
    peers = _peers(collection, progress)
    for number, group in enumerate(collection.groups):
        ranks = set(group.ranks)
        if len(ranks) >= 3 and not any(peers.get(rank, set()) & ranks for rank in ranks):
            late = _straggler(collection, progress, number)
            if late is not None:
                found.append(late)
    own = [one for one in found if not any(other.rank != one.rank and one.rank in _others(collection, other) for other in found)]
    waits = {one.rank: _waited_s(collection, one.rank) for one in own}
    order = sorted(waits, key=lambda rank: waits[rank])
    if len(order) > 1 and waits[order[0]] >= 0.8 * waits[order[1]]:
        return []
    if any(not peers.get(rank, set()) <= collection.dumps.keys() for rank in order[:1]):
        return []
    return sorted((one for one in own if one.rank in order[:1]), key=lambda late: -late.share)[:1]


def _others(collection: Collection, late: Late) -> set[int]:
    return set(collection.groups[late.group].ranks) - {late.rank}


def _waited_s(collection: Collection, rank: int) -> float:
    """How long a rank had operations open that wait for others; a send does not, and a batch counts once."""
    dump = collection.dumps[rank]
    use = np.isin(dump.kind_E, (COLLECTIVE, RECEIVE, COALESCED)) & (dump.completed_E > 0) & (dump.created_E > 0)
    return float((dump.completed_E[use] - dump.created_E[use]).sum()) / 1e9


def _straggler(collection: Collection, progress: Progress, number: int) -> Late | None:
    ranks, created_SR, completed_SR = _times(collection, progress, number)
    size = len(collection.groups[number].ranks)
    both_S = ((created_SR > 0) & (completed_SR > 0)).all(axis=1) if len(ranks) >= 3 and 2 * len(ranks) > size else np.zeros(0, bool)
    if both_S.sum() < _LEAST_OPERATIONS:
        return None
    wait_SR = (completed_SR[both_S] - created_SR[both_S]) / 1e9
    order_SR = np.sort(wait_SR, axis=1)
    latest_S = wait_SR.argmin(axis=1)
    alone_S = order_SR[:, 1] - order_SR[:, 0]
    cost_R = np.bincount(latest_S, weights=alone_S, minlength=len(ranks))
    span_s = float(np.ptp(completed_SR[both_S].max(axis=1))) / 1e9
    worst = int(cost_R.argmax())
    rest_s = float(np.delete(cost_R, worst).max())
    share = float(cost_R[worst]) / span_s if span_s > 0 else 0.0
    if share < _SHARE or cost_R[worst] < _TIMES_THE_NEXT * rest_s or (latest_S == worst).mean() < 0.3:
        return None
    late_s = float(np.median(alone_S[latest_S == worst]))
    if len(ranks) < size and np.median(order_SR[latest_S == worst, 0]) > late_s:
        return None  # it waits itself, for one whose dump is missing
    return Late(ranks[worst], number, late_s, share) if late_s >= _LEAST_S else None


def late_in_last(collection: Collection, progress: Progress, stalls: Mapping[int, Pending]) -> list[Late]:
    """Ranks that launched an operation that is open everywhere far later than its other participants."""
    found = []
    for number, sequence in sorted({(op.group, op.sequence) for op in stalls.values() if op.kind == COLLECTIVE}):
        ranks, created_SR, completed_SR = _times(collection, progress, number, sequence)
        if len(ranks) < max(3, len(collection.groups[number].ranks)) or not len(created_SR) or not (created_SR[-1] > 0).all():
            continue
        offset_R = _clock_offsets(created_SR[:-1], completed_SR[:-1])
        late_R = (created_SR[-1] - created_SR[-1].min()) / 1e9 - offset_R
        order = np.argsort(-late_R)
        gap_s = float(late_R[order[0]] - late_R[order[1]])
        rest_s = float(late_R[order[1]] - late_R[order[-1]])
        if gap_s >= _LATE_S and gap_s >= 5 * rest_s:
            found.append(Late(ranks[int(order[0])], number, gap_s, 0.0))
    return found


def _clock_offsets(created_SR: np.ndarray, completed_SR: np.ndarray) -> np.ndarray:
    """Seconds by which each rank's notes are usually later than its group's: clocks, if completions say so, else habit."""
    for times_SR in (completed_SR, created_SR):
        full_S = (times_SR > 0).all(axis=1)
        if full_S.any():
            seconds_SR = (times_SR[full_S] - times_SR[full_S].min(axis=1, keepdims=True)) / 1e9
            return np.asarray(np.median(seconds_SR - np.median(seconds_SR, axis=1, keepdims=True), axis=0))
    return np.zeros(created_SR.shape[1])


class _Times(NamedTuple):
    """Ranks that have a dump, and when each created and completed the group's collectives: in ns, 0 where not noted, newest last."""

    ranks: list[int]
    created_SR: np.ndarray
    completed_SR: np.ndarray


def _times(collection: Collection, progress: Progress, number: int, until: int | None = None) -> _Times:
    tracks = progress.tracks[number]
    members = {}
    for rank, track in tracks.items():
        dump = collection.dumps[rank]
        rows = track.rows[dump.kind_E[track.rows] == COLLECTIVE]
        if until is not None:
            rows = rows[dump.sequence_E[rows] <= until]
        members[rank] = (dump.sequence_E[rows], dump.created_E[rows], dump.completed_E[rows])
    known = [np.unique(sequences) for sequences, _, _ in members.values()]
    if not known:
        return _Times([], np.zeros((0, 0)), np.zeros((0, 0)))
    common = known[0]
    for sequences in known[1:]:
        common = np.intersect1d(common, sequences, assume_unique=True)
    common = common[-_MOST_OPERATIONS:]
    created_SR, completed_SR = np.zeros((len(common), len(members)), np.int64), np.zeros((len(common), len(members)), np.int64)
    for column, (sequences, created, completed) in enumerate(members.values()):
        place = np.searchsorted(sequences, common)
        created_SR[:, column], completed_SR[:, column] = created[place], completed[place]
    return _Times(list(members), created_SR, completed_SR)


def _peers(collection: Collection, progress: Progress) -> dict[int, set[int]]:
    """Whom each rank sends to or receives from: another pipeline stage, which may be later than its own by design."""
    found: dict[int, set[int]] = {}
    for number, tracks in enumerate(progress.tracks):
        ranks = collection.groups[number].ranks
        for rank, track in tracks.items():
            dump = collection.dumps[rank]
            rows = track.rows[np.isin(dump.kind_E[track.rows], (SEND, RECEIVE))]
            found.setdefault(rank, set()).update(ranks[peer] for peer in set(dump.peer_E[rows].tolist()) if 0 <= peer < len(ranks))
    return found
