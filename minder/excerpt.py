"""What an incident keeps of telemetry. Re-exported by `minder.types`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ExcerptPanel", "TelemetryExcerpt"]


@dataclass(frozen=True, slots=True)
class ExcerptPanel:
    """One metric at the times of its excerpt, in its base unit, None without data. low, middle, high: the peers; line: the machine."""

    low: tuple[float | None, ...]
    middle: tuple[float | None, ...]
    high: tuple[float | None, ...]
    line: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class TelemetryExcerpt:
    """Some minutes of a few metrics of an accused machine around its fault, against its `peers` machines. Its size is bounded."""

    machine: str
    fault_s: float
    verdict_s: float
    peers: int
    times: tuple[float, ...]
    metrics: Mapping[str, ExcerptPanel]
