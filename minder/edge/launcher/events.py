"""What happened to the workers, in order, for clients that ask `since` a number: the last 10,000 events."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice

from minder.model.evidence import Signal

__all__ = ["EventRing"]


class EventRing:
    """Append-only from inside the loop; readers wait for news without holding anything up."""

    def __init__(self, limit: int = 10_000) -> None:
        self._events: deque[Signal] = deque(maxlen=limit)
        self._waiting: set[asyncio.Future[None]] = set()
        self.next = 0

    def append(self, event: Signal) -> None:
        self._events.append(event)
        self.next += 1
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def since(self, number: int) -> tuple[list[Signal], int]:
        """Events from `number` on, and how many of them were dropped already."""
        oldest = self.next - len(self._events)
        start = min(max(number, oldest), self.next)
        return list(islice(self._events, start - oldest, None)), max(0, oldest - number)

    async def wait_for_news(self, number: int, wait_s: float) -> None:
        """Return when there is an event `number`, or after wait_s."""
        if number < self.next or wait_s <= 0:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait_for(future, wait_s)
        except TimeoutError:
            pass
        finally:
            self._waiting.discard(future)
