"""What is new in the ledger since it was last looked at, in bounded portions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from minder.model.history import LedgerEvent
from minder.record.store.rows import EventQuery

if TYPE_CHECKING:
    from minder.record.store.events import EventStore

__all__ = ["EventFollower"]

_WINDOW = 2_000  # ids: a job of thousands of ranks has events of 200 kB


class EventFollower:
    """Follows the events of some kinds. What was taken is not given again, and what was not taken is.

    read_id: every event up to this one has been given or is of another kind; set it back to begin again. bare: kinds whose payload is
    not read.
    """

    def __init__(self, events: EventStore, names: Sequence[str], read_id: int = 0, *, bare: Sequence[str] = ()) -> None:
        self._events, self._names, self._bare = events, tuple(names), tuple(bare)
        self.read_id = read_id

    def new(self) -> Iterator[LedgerEvent]:
        """Oldest first, in windows, so that not all of a long past is in memory at once. Raises LedgerError."""
        last_id = self._events.last_id()
        while self.read_id < last_id:
            end_id = min(self.read_id + _WINDOW, last_id)
            query = EventQuery(since_id=self.read_id, before_id=end_id + 1, kinds=self._names, bare_kinds=self._bare)
            for event in self._events.select(query):
                yield event
                self.read_id = event.id
            self.read_id = end_id
