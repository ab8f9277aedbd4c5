"""How long a loader process may take before it counts as hung (pure): learned from its own past."""

from __future__ import annotations

from collections import deque
from typing import Literal, TypeAlias

__all__ = ["Patience", "Stage"]

_FACTOR = 10.0
_PAST = 256

# A process answers its start at once; its first batch is slow, since it opens the data; then they come as usual.
Stage: TypeAlias = Literal["answer", "first", "usual"]


class Patience:
    """least_s: no limit is shorter. The limit of a stage is ten times the slowest of its last 256, or ten times `least_s` before any."""

    def __init__(self, least_s: float) -> None:
        self._least_s = least_s
        self._past_s: dict[Stage, deque[float]] = {stage: deque(maxlen=_PAST) for stage in ("answer", "first", "usual")}

    def learn(self, seconds: float, stage: Stage = "usual") -> None:
        """What an answer or a batch took."""
        self._past_s[stage].append(seconds)

    def limit_s(self, failures: int = 0, stage: Stage = "usual") -> float:
        """Doubled with each process in a row that brought nothing: data that has become slow is no fault of a process.

        >>> patience = Patience(least_s=2.0)
        >>> patience.learn(0.5)
        >>> patience.limit_s(), patience.limit_s(failures=2), patience.limit_s(stage="first")
        (5.0, 20.0, 20.0)
        """
        slowest_s = max(self._past_s[stage], default=self._least_s)
        return max(self._least_s, _FACTOR * slowest_s) * float(2**failures)
