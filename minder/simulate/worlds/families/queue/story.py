"""What happens to the servers of one world, in the words of a queueing model.

A `Service` changes rates of service, a `Hold` keeps a server from going on, a `Gap` is time in which no process runs, and a `Mark`
changes what an exporter shows. Seconds are since the start of the world. Legend: R servers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

__all__ = ["Gap", "Hold", "Mark", "Service", "Story"]


@dataclass(frozen=True, slots=True)
class Service:
    """Rates of service of some servers, times these factors, from start to end. on_s of every period_s if it comes and goes."""

    start: float
    end: float
    who_R: np.ndarray
    compute: float = 1.0
    network: float = 1.0
    load: float = 1.0
    write: float = 1.0
    evaluation: bool = False
    period_s: float = 0.0
    on_s: float = 0.0

    def is_on(self, now: float) -> bool:
        """Whether it holds now."""
        return self.start <= now < self.end and (not self.period_s or (now - self.start) % self.period_s < self.on_s)


@dataclass(frozen=True, slots=True)
class Hold:
    """From `at` on these servers stand for `length` seconds (inf: for ever), in compute, in the exchange or in their next write."""

    at: float
    length: float
    who_R: np.ndarray
    place: Literal["compute", "exchange", "write", "wait"] = "compute"


@dataclass(frozen=True, slots=True)
class Gap:
    """No process of the job runs."""

    at: float
    length: float


@dataclass(frozen=True, slots=True)
class Mark:
    """A change of what is shown for some servers. metrics: () is all. `silent`: no rows. `to`: reached over the span.

    `count`: events per second, with their chance. `climb`: a counter's growth per second.
    lie: the exporter's doing, after its rounding; else the instrument's own reading changes.
    """

    start: float
    end: float
    who_R: np.ndarray
    metrics: tuple[str, ...]
    do: Literal["times", "set", "add", "count", "climb", "to", "freeze", "silent", "blank"]
    value: float = 0.0
    period_s: float = 0.0
    on_s: float = 0.0
    lie: bool = False


@dataclass(slots=True)
class Story:
    """All that happens in a world, in no order."""

    services: list[Service] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    def add(self, *parts: Service | Hold | Gap | Mark) -> None:
        """Each to its kind."""
        for part in parts:
            match part:
                case Service():
                    self.services.append(part)
                case Hold():
                    self.holds.append(part)
                case Gap():
                    self.gaps.append(part)
                case Mark():
                    self.marks.append(part)
