"""New events of the ledger, read once for all who follow it. Other processes write to the ledger, so it is asked twice a second."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from minder.model.errors import LedgerError
from minder.model.history import LedgerEvent
from minder.record.store.events import EventQuery, EventStore

__all__ = ["Tail"]

_KEPT = 2000
_BATCH = 500


class Tail:
    """Keeps the newest events in memory; who is further behind reads the ledger."""

    def __init__(self, events: EventStore, poll_s: float = 0.5) -> None:
        self._events, self._poll_s = events, poll_s
        self._kept: deque[LedgerEvent] = deque(maxlen=_KEPT)
        self._last_id = 0
        self._begun_id = 0  # everything after this one is in memory, as far as it goes
        self._news = asyncio.Event()
        self.failures = 0

    async def follow(self) -> None:
        """Read new events for ever. While the ledger cannot be read, nothing is passed on, and `failures` counts."""
        self._last_id = self._begun_id = await self._retry_last_id()
        while True:
            try:
                new = await asyncio.to_thread(self._events.select, EventQuery(since_id=self._last_id, limit=_BATCH))
            except LedgerError:
                self.failures += 1
                new = []
            if new:
                self._kept.extend(new)
                self._last_id = new[-1].id
                news, self._news = self._news, asyncio.Event()
                news.set()
            if len(new) < _BATCH:
                await asyncio.sleep(self._poll_s)

    async def _retry_last_id(self) -> int:
        while True:
            try:
                return await asyncio.to_thread(self._events.last_id)
            except LedgerError:
                self.failures += 1
                await asyncio.sleep(self._poll_s)

    async def after(self, since_id: int, wait_s: float) -> Sequence[LedgerEvent]:
        """Events after `since_id`, at most some hundred at once; none where nothing came within `wait_s`."""
        if since_id >= self._last_id:
            try:
                await asyncio.wait_for(self._news.wait(), wait_s)
            except TimeoutError:
                return ()
        oldest = self._kept[0].id if self._kept else self._last_id + 1
        if since_id >= self._begun_id and (since_id >= oldest - 1 or len(self._kept) < _KEPT):
            return [event for event in self._kept if event.id > since_id][:_BATCH]
        return await asyncio.to_thread(self._events.select, EventQuery(since_id=since_id, limit=_BATCH))
