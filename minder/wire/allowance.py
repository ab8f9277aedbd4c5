"""How much one machine may say. A compromised machine can talk without end: that must cost the others nothing, and what is left out
of its words is reported."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

__all__ = ["MOST_PROCESSES", "MOST_SIGNALS", "Allowance", "rest_s"]

MOST_SIGNALS = 10_000  # at once: as many as an agent keeps for a controller that was away
MOST_PROCESSES = 10_000
_SIGNALS_PER_S = 50.0
_LEAST_S = 0.05  # between two questions, also where the answer comes at once
_BYTES_PER_S = 4 * 2**20


class Allowance:
    """A bucket, of signals for one: so many at once, so many a second after that."""

    def __init__(self, most: int = MOST_SIGNALS, per_s: float = _SIGNALS_PER_S) -> None:
        self._most, self._per_s = most, per_s
        self._left = float(most)
        self._seen_s = time.monotonic()

    def take(self, wanted: int, whole: bool = False) -> int:
        """How many of so many may be taken now. whole: all of them or none."""
        now_s = time.monotonic()
        self._left = min(float(self._most), self._left + (now_s - self._seen_s) * self._per_s)
        self._seen_s = now_s
        taken = min(wanted, int(self._left)) if not whole or wanted <= self._left else 0
        self._left -= taken
        return taken


def rest_s(answer: Mapping[str, Any], took_s: float) -> float:
    """How long a machine is not asked again, after an answer that took so long: the longer, the more it said.

    >>> rest_s({}, 1.0)
    0.0
    """
    return max(0.0, _LEAST_S - took_s, float(answer.get("_bytes", 0)) / _BYTES_PER_S - took_s)
