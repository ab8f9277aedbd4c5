"""What people have planned: times in which minder does not act. Records only, as in minder.types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Maintenance", "Pause"]


@dataclass(frozen=True, slots=True)
class Pause:
    """Actions (never alarms) are stopped for a scope until a time."""

    scope: Literal["all", "job", "rack"]
    target: str | None
    until_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A planned window in which nothing is done to these machines, machines of these racks, or jobs. Alarms go on."""

    id: str
    from_s: float
    until_s: float
    machines: tuple[str, ...] = ()
    racks: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    reason: str = ""
    by: str = ""
