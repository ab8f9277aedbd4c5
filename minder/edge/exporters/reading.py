"""What one exporter saw at one instant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from minder.model.evidence import Signal

__all__ = ["BLANK_ABOVE", "Reading", "Series"]

Series = tuple[str, str | None]  # canonical name, device (None: the whole machine)

BLANK_ABOVE = 9.2e18  # NVML, DCGM and sysfs write "no value" as numbers near 2^63 and 2^64


@dataclass(slots=True)
class Reading:
    """Values in the base units of the metric catalogue, names without the `minder_` prefix.

    counters: totals of events, named without `_total`. info: series whose value is 1 and whose labels are the message.
    """

    gauges: dict[Series, float] = field(default_factory=dict)
    counters: dict[Series, float] = field(default_factory=dict)
    info: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)

    def gauge(self, name: str, value: float | None, device: str | None = None) -> None:
        """Note a gauge; None, NaN, infinite and blank values are no data."""
        if value is not None and math.isfinite(value) and abs(value) < BLANK_ABOVE:
            self.gauges[name, device] = float(value)

    def counter(self, name: str, value: float | None, device: str | None = None) -> None:
        """Note a counter's total; None, NaN, infinite and blank values are no data."""
        if value is not None and math.isfinite(value) and abs(value) < BLANK_ABOVE:
            self.counters[name, device] = float(value)

    def merge(self, other: Reading) -> None:
        self.gauges.update(other.gauges)
        self.counters.update(other.counters)
        self.info.extend(other.info)
        self.signals.extend(other.signals)

    def __len__(self) -> int:
        return len(self.gauges) + len(self.counters) + len(self.info)
