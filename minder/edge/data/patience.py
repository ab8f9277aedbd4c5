"""How long a loader process may take for a batch before it counts as hung (pure): learned from its own past."""

from __future__ import annotations

from collections import deque

__all__ = ["Patience"]

_FACTOR = 10.0
_PAST = 256


class Patience:
    """least_s: no limit is shorter. The limit is ten times the slowest of the last 256 batches, or ten times `least_s` while there is none.
    A process's first batch is slow, since it opens the data: its limit is learned from first batches."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._past_s: dict[bool, deque[float]] = {first: deque(maxlen=_PAST) for first in (True, False)}

    def learn(self, seconds: float, *, first: bool = False) -> None:
        """What one batch took to load."""
        self._past_s[first].append(seconds)

    def limit_s(self, failures: int = 0, *, first: bool = False) -> float:
        """Doubled with each process in a row that brought nothing: data that has become slow is no fault of a process.

        >>> patience = Patience(least_s=2.0)
        >>> patience.learn(0.5)
        >>> patience.limit_s(), patience.limit_s(failures=2), patience.limit_s(first=True)
        (5.0, 20.0, 20.0)
        """
        slowest_s = max(self._past_s[first], default=self._least_s)
        return max(self._least_s, _FACTOR * slowest_s) * float(2**failures)
