"""The five figures of the ledger, folded once; what is new is read as it comes."""

from __future__ import annotations

from collections.abc import Collection

from minder.record.incidents.track_record import TRACK_BARE, TRACK_KINDS, TrackRecord, TrackRecordFold
from serve.one_reading import OneReading

__all__ = ["TrackIndex"]


class TrackIndex:
    """Safe for several threads."""

    def __init__(self, reading: OneReading) -> None:
        self._reading, self._fold = reading, TrackRecordFold()
        reading.feed(TRACK_KINDS, self._fold.add, TRACK_BARE)

    def record(self, since_s: float, until_s: float, jobs: Collection[str] | None = None) -> TrackRecord:
        """Of a period, in unix seconds; jobs: of these alone. Raises LedgerError."""
        with self._reading.current():
            return self._fold.record(since_s, until_s, jobs)
