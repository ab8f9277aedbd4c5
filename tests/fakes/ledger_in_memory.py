"""What a simulated schedule wrote to its ledger, in memory: a tick asks the ledger some fifteen times, and half of its time went there.

Only plain reads are answered here, as the database would; whatever else is asked goes to the database, which every write goes to first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from minder.model.history import LedgerEvent
from minder.record.store.rows import EventQuery

__all__ = ["LedgerInMemory"]

_PLAIN = {"since_id", "before_id", "job", "incident", "incidents", "operation_id", "kinds", "without_kinds", "limit", "newest_first"}
_OTHERS = [(place, EventQuery()[place]) for place, name in enumerate(EventQuery._fields) if name not in _PLAIN]


class LedgerInMemory:
    """`add` every event that was written, oldest first; `answer_for` every store that is read."""

    def __init__(self) -> None:
        self._events: list[LedgerEvent] = []
        self._ids: list[int] = []

    def add(self, event: LedgerEvent) -> None:
        self._events.append(event)
        self._ids.append(event.id)

    def answer_for(self, store: Any) -> None:
        """Until it is closed."""
        read: Callable[[EventQuery], list[LedgerEvent]] = store.select
        store.select = lambda query: self._select(query) if _is_plain(query) else read(query)
        store.last_id = lambda: self._ids[-1] if self._ids else 0

    def _select(self, query: EventQuery) -> list[LedgerEvent]:
        found = self._events[bisect_right(self._ids, query.since_id) :]
        if not found:
            return found
        for name in ("job", "incident", "operation_id"):
            if (value := getattr(query, name)) is not None:
                found = [event for event in found if getattr(event, name) == value]
        if query.kinds is not None:
            found = [event for event in found if event.kind in query.kinds]
        if query.incidents is not None:
            found = [event for event in found if event.incident in query.incidents]
        found = [event for event in found if event.kind not in query.without_kinds]
        if query.before_id is not None:
            found = [event for event in found if event.id < query.before_id]
        return (found[::-1] if query.newest_first else found)[: query.limit]


def _is_plain(query: EventQuery) -> bool:
    return all(query[place] == value for place, value in _OTHERS)
