"""The five figures of the ledger, folded once; what is new is read as it comes."""

from __future__ import annotations

import threading
from collections.abc import Collection

from minder.record.incidents.track_record import TRACK_KINDS, TrackRecord, TrackRecordFold
from minder.record.store.events import EventStore
from minder.record.store.follow import EventFollower

__all__ = ["TrackIndex"]


class TrackIndex:
    """Safe for several threads."""

    def __init__(self, events: EventStore) -> None:
        self._follower = EventFollower(events, TRACK_KINDS)
        self._fold = TrackRecordFold()
        self._lock = threading.Lock()

    def record(self, since_s: float, until_s: float, jobs: Collection[str] | None = None) -> TrackRecord:
        """Of a period, in unix seconds; jobs: of these alone. Raises LedgerError."""
        with self._lock:
            for event in self._follower.new():
                self._fold.add(event)
            return self._fold.record(since_s, until_s, jobs)
