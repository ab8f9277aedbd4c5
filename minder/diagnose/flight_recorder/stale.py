"""Dumps that are older than those of their peers: what their ranks launched afterwards is not in them, so they say nothing of a hang.

An operation that needs everybody cannot complete without a rank's part. Where a peer's dump shows such an operation complete that is
not in a rank's dump, the rank went on after the dump was taken: the file is an old one, or the recorder lost count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from minder.diagnose.flight_recorder.progress import Track, follow
from minder.diagnose.flight_recorder.records import COLLECTIVE, NEEDS_ALL, Collection

__all__ = ["without_stale"]

_WHY = "its dump is older than those of its peers, which completed with it what is not in it"


def without_stale(collection: Collection) -> Collection:
    """The collection without such dumps; their ranks are missing, with the reason."""
    old: set[int] = set()
    progress = follow(collection)
    for number, members in enumerate(progress.tracks):
        if len(members) > 1 and len(collection.groups[number].ranks) > 1:
            old |= _behind(collection, members)
    if not old or 2 * len(old) > len(collection.dumps):  # most are no exception: something else is wrong with the numbers
        return replace(collection, followed=progress)
    kept = {rank: dump for rank, dump in collection.dumps.items() if rank not in old}
    return replace(collection, dumps=kept, unreadable={**collection.unreadable, **dict.fromkeys(sorted(old), _WHY)}, stale=frozenset(old))


def _behind(collection: Collection, members: Mapping[int, Track]) -> set[int]:
    """Ranks whose dump ends before an operation that a peer saw complete with them."""
    families = {
        collection.signatures[index].family
        for rank, track in members.items()
        for index in np.unique(collection.dumps[rank].signature_E[_collectives(collection, rank, track)]).tolist()
    }
    if not families:
        return set()
    complete = [_complete(collection, rank, track, families <= NEEDS_ALL) for rank, track in members.items()]
    together = max(complete, default=0)
    return {
        rank
        for rank, track in members.items()
        if track.enqueued is not None and _has_records(collection, rank) and track.enqueued < together
    }


def _collectives(collection: Collection, rank: int, track: Track) -> np.ndarray:
    rows: np.ndarray = track.rows[collection.dumps[rank].kind_E[track.rows] == COLLECTIVE]
    return rows


def _has_records(collection: Collection, rank: int) -> bool:
    """A dump without entries and counters is no old one: it says that its rank has launched nothing."""
    return bool(collection.dumps[rank].entries or collection.dumps[rank].status)


def _complete(collection: Collection, rank: int, track: Track, all_need: bool) -> int:
    """The newest sequence id that this rank saw complete and that needed everybody."""
    if all_need:
        return track.completed or 0
    dump = collection.dumps[rank]
    done = [
        int(dump.sequence_E[row])
        for row in _collectives(collection, rank, track).tolist()
        if dump.sequence_E[row] <= (track.completed or 0) and collection.signatures[dump.signature_E[row]].family in NEEDS_ALL
    ]
    return max(done, default=0)
