"""Counters that saturate, reset with their driver, or vanish for a while, as one that only grows."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["Growth"]


class Growth:
    """Sums the growth of raw counters since the agent started.

    A counter that fell (reset) or stands at its limit adds nothing until it moves again; the sum never falls.
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._total = 0

    def add(self, values: Mapping[str, int]) -> int:
        """values: the raw counters that can be trusted now. Returns the total so far."""
        for name, value in values.items():
            if name in self._before:
                self._total += max(0, value - self._before[name])
        self._before = dict(values)
        return self._total
