"""Time as a small protocol, so that everything that waits can be tested without waiting."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "FakeClock", "SystemClock", "format_time", "parse_time"]


class Clock(Protocol):
    """Wall clock in unix seconds, monotonic seconds, and a sleep that belongs to both."""

    def now_s(self) -> float: ...

    def monotonic_s(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The machine's own clock."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class FakeClock:
    """A clock that only moves when its user sleeps on it, or sets it."""

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s
        self._monotonic_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def sleep(self, seconds: float) -> None:
        self._now_s += max(0.0, seconds)
        self._monotonic_s += max(0.0, seconds)

    def set_forward(self, seconds: float) -> None:
        """The wall clock is set; no time passes. Negative: backwards."""
        self._now_s += seconds


def format_time(time_s: float) -> str:
    """Unix seconds as ISO 8601 UTC with milliseconds, as recordings have them.

    >>> format_time(1772431951.0)
    '2026-03-02T06:12:31.000Z'
    """
    stamp = datetime.fromtimestamp(round(time_s * 1000) / 1000, tz=UTC)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{stamp.microsecond // 1000:03d}Z"


def parse_time(text: str) -> float:
    """ISO 8601 to unix seconds; a time without a zone is UTC. Raises ValueError.

    >>> parse_time("2026-03-02T06:12:31Z")
    1772431951.0
    """
    stamp = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
    return stamp.timestamp()
