"""The cells of a recording that one happening touches, and what can be done to them. Legend: U units, T scrapes."""

from __future__ import annotations

import numpy as np

from minder.simulate.worlds.families.measured.load import Load, Span
from minder.simulate.worlds.families.measured.process import Recording
from minder.simulate.worlds.families.measured.sketch import Happening

__all__ = ["CLOCK", "CONGESTION", "CPU", "POWER", "WORKED", "Where"]

CONGESTION = ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second", "rdma_xmit_wait_per_second")
WORKED = ("gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio", "nvlink_bandwidth_bytes_per_second")
CLOCK, POWER, CPU = "gpu_clock_hertz", "gpu_power_draw_watts", "cpu_usage_ratio"


class Where:
    """The cells of a recording that one happening touches."""

    def __init__(self, recording: Recording, load: Load, it: Happening, span: Span | None = None, card: bool = False) -> None:
        span = span or Span(it.start, it.end)
        units_U = load.units(it.who, it.card if card else -1)
        self.values = recording.values
        self.on_UT = span.covers(recording.times_UT) & units_U[:, None]

    def times(self, factor: float, *names: str) -> None:
        """Times a factor."""
        for name in names:
            if name in self.values:
                self.values[name][self.on_UT] *= factor

    def add(self, amount: float | np.ndarray, *names: str) -> None:
        """An amount more, one for all or by cell."""
        for name in names:
            if name in self.values:
                self.values[name][self.on_UT] += amount if np.isscalar(amount) else np.asarray(amount)[self.on_UT]

    def set(self, value: float, *names: str) -> None:
        """This value."""
        for name in names:
            if name in self.values:
                self.values[name][self.on_UT] = value

    def freeze(self, *names: str) -> None:
        """What was shown before the first cell, to the digit."""
        for name in names:
            for unit in np.flatnonzero(self.on_UT.any(axis=1)):
                first = max(0, int(np.argmax(self.on_UT[unit])) - 1)
                self.values[name][unit, self.on_UT[unit]] = self.values[name][unit, first]
