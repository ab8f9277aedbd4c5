"""The contract of every telemetry source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from minder.model.telemetry import Sample

__all__ = ["Source"]


class Source(Protocol):
    """Where samples come from: Prometheus, agents, a recording."""

    def collect(self, now_s: float) -> Sequence[Sample]:
        """All samples that became known since the last call, each once, with its own time, in time order.

        A machine that says nothing has no samples: absence, which only a second witness makes a fault. Raises SourceError
        if the source itself did not answer, or not fully: nothing is lost, the next call covers the gap up to a bound.
        Raises IdentityError if targets cannot be distinguished.
        """

    def close(self) -> None:
        """Let go of connections and threads."""
