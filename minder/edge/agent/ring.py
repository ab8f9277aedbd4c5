"""The last signals of a machine, numbered, for clients that ask again and again from where they stopped."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from minder.model.evidence import Signal

__all__ = ["SignalRing", "Slice"]


@dataclass(frozen=True, slots=True)
class Slice:
    """Signals from a number on. dropped: how many between that number and the oldest one kept were lost."""

    signals: tuple[Signal, ...]
    next: int
    dropped: int


class SignalRing:
    """Written by the sampling and kernel threads, read by the event loop."""

    def __init__(self, size: int = 10_000) -> None:
        self._ring: deque[Signal] = deque(maxlen=size)
        self._next = 0
        self._lock = threading.Lock()
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def append(self, signals: Iterable[Signal]) -> None:
        with self._lock:
            before = self._next
            for signal in signals:
                self._ring.append(signal)
                self._next += 1
            waiters = tuple(self._waiters) if self._next != before else ()
        for loop, event in waiters:
            loop.call_soon_threadsafe(event.set)

    def read(self, since: int) -> Slice:
        """Signals numbered `since` and up. A number from a former life of this agent (too high) starts at the oldest."""
        with self._lock:
            oldest = self._next - len(self._ring)
            if since > self._next:
                since = oldest
            start = max(since, oldest)
            return Slice(tuple(self._ring)[start - oldest :], self._next, start - max(0, since))

    async def wait(self, since: int, wait_s: float) -> Slice:
        """As `read`, but waits for a first signal if there is none yet."""
        event = asyncio.Event()
        entry = (asyncio.get_running_loop(), event)
        with self._lock:
            self._waiters.add(entry)
        try:
            found = self.read(since)
            if not found.signals and wait_s > 0:
                try:
                    await asyncio.wait_for(event.wait(), wait_s)
                except TimeoutError:
                    pass
                found = self.read(since)
            return found
        finally:
            with self._lock:
                self._waiters.discard(entry)
