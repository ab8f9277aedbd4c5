"""What a simulated schedule wrote to its ledger, in memory: a tick asks the ledger some fifteen times, and half of its time went there.

Only plain reads are answered here, as the database would; whatever else is asked goes to the database, which every write goes to first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from operator import attrgetter, itemgetter
from typing import Any

from minder.model.history import LedgerEvent
from minder.record.store.rows import EventQuery

__all__ = ["LedgerInMemory"]

_PLAIN = {"since_id", "before_id", "job", "incident", "incidents", "operation_id", "kinds", "without_kinds", "limit", "newest_first"}
_OTHERS = [place for place, name in enumerate(EventQuery._fields) if name not in _PLAIN]
_others = itemgetter(*_OTHERS)
_NOTHING_ELSE = _others(EventQuery())


class LedgerInMemory:
    """`add` every event that was written, oldest first; `answer_for` every store that is read."""

    def __init__(self) -> None:
        self._events: list[LedgerEvent] = []
        self._ids: list[int] = []
        self._of_kind: defaultdict[str, list[LedgerEvent]] = defaultdict(list)

    def add(self, event: LedgerEvent) -> None:
        self._events.append(event)
        self._ids.append(event.id)
        self._of_kind[event.kind].append(event)

    def answer_for(self, store: Any) -> None:
        """Until it is closed."""
        read: Callable[[EventQuery], list[LedgerEvent]] = store.select
        store.select = lambda query: self._select(query) if _is_plain(query) else read(query)
        store.last_id = lambda: self._ids[-1] if self._ids else 0

    def _select(self, query: EventQuery) -> list[LedgerEvent]:
        if query.kinds is None or query.since_id:
            found = self._events[bisect_right(self._ids, query.since_id) :]
            if query.kinds is not None:
                found = [event for event in found if event.kind in query.kinds]
        else:  # the whole past, a few kinds of it
            found = sorted((event for kind in {*query.kinds} for event in self._of_kind[kind]), key=attrgetter("id"))
        if not found:
            return found
        for name in ("job", "incident", "operation_id"):
            if (value := getattr(query, name)) is not None:
                found = [event for event in found if getattr(event, name) == value]
        if query.incidents is not None:
            found = [event for event in found if event.incident in query.incidents]
        if query.without_kinds:
            found = [event for event in found if event.kind not in query.without_kinds]
        if query.before_id is not None:
            found = [event for event in found if event.id < query.before_id]
        return (found[::-1] if query.newest_first else found)[: query.limit]


def _is_plain(query: EventQuery) -> bool:
    return bool(_others(query) == _NOTHING_ELSE)
