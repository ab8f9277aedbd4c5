"""Questions to operators, read once: what the ledger had before as a whole, what is new as it comes."""

from __future__ import annotations

import threading

from minder.model.history import Approval
from minder.record.incidents import kinds
from minder.record.incidents.approvals import APPROVAL_KINDS, ApprovalFold
from minder.record.store.events import EventQuery, EventStore

__all__ = ["ApprovalIndex"]


class ApprovalIndex:
    """Safe for several threads."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self._fold = ApprovalFold()
        self._read_id = -1  # nothing was asked yet, as far as we know
        self._lock = threading.Lock()

    def approvals(self) -> list[Approval]:
        """Every question, oldest first. Of a ledger in which nothing was asked, nothing else is read."""
        with self._lock:
            if self._read_id < 0:
                first = self._events.select(EventQuery(kinds=(kinds.APPROVAL_ASKED,), limit=1))
                if not first:
                    return []
                self._read_id = first[0].id - 1
            for event in self._events.select(EventQuery(since_id=self._read_id, kinds=APPROVAL_KINDS)):
                self._fold.add(event)
                self._read_id = event.id
            return self._fold.approvals()
