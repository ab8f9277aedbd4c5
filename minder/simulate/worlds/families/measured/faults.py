"""What each fault does to metrics that load does not explain. Legend: U units, T scrapes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minder.simulate.worlds.families.measured.cells import CLOCK, CONGESTION, CPU, POWER, WORKED, Where
from minder.simulate.worlds.families.measured.load import Load, Span, bouts, repeated
from minder.simulate.worlds.families.measured.process import Recording
from minder.simulate.worlds.families.measured.sketch import Happening, rng_for

__all__ = ["touch_fault"]


class _Fault:
    """One fault in one recording: the cells of its machines, and of the one card that is faulty."""

    def __init__(self, recording: Recording, load: Load, it: Happening) -> None:
        self.recording, self.load, self.it = recording, load, it
        self.size = it.size
        self.rng = rng_for(recording.sketch.seed, "touch", it.name)
        self.where = Where(recording, load, it)
        self.card = Where(recording, load, it, card=True)

    def within(self, start: float, end: float = np.inf) -> Where:
        """The cells of its machines in another span."""
        return Where(self.recording, self.load, self.it, Span(start, end))


def _slow(fault: _Fault) -> None:
    fault.card.times(0.99 - 0.2 * fault.size, POWER)


def _busy_processor(fault: _Fault) -> None:
    fault.where.add(0.15 + 0.6 * fault.size, CPU)
    fault.where.times(0.93 - 0.5 * fault.size, "gpu_sm_activity_ratio", "gpu_duty_cycle_ratio")


def _dirty_optics(fault: _Fault) -> None:
    fault.where.times(2.0 + 6.0 * fault.size, *CONGESTION)
    errors_UT = fault.rng.poisson(1 + 30 * fault.size, fault.recording.times_UT.shape).astype(float)
    fault.where.add(errors_UT, "link_errors_per_second")
    fault.where.add(2.0 + 5 * fault.size, "tcp_retransmits_per_second")


def _flat_clock(fault: _Fault) -> None:
    if CLOCK in fault.recording.values:
        top = float(fault.recording.values[CLOCK].max())
        fault.card.set(float(np.round(top * (0.88 - 0.35 * fault.size), -7)), CLOCK)


def _throttle_bouts(fault: _Fault) -> None:
    card = Where(fault.recording, fault.load, fault.it, bouts(fault.recording.sketch, fault.it), card=True)
    card.times(0.9 - 0.45 * fault.size, CLOCK)
    card.times(0.95 - 0.35 * fault.size, POWER)
    card.set(float(fault.rng.choice([8, 32, 64])), "gpu_throttle_reasons")


def _nvlink_lane(fault: _Fault) -> None:
    fault.card.times(0.98 - 0.25 * fault.size, "nvlink_bandwidth_bytes_per_second")


def _pcie_width(fault: _Fault) -> None:
    fault.card.set(8.0 if fault.size < 0.5 else float(fault.rng.choice([1, 2, 4])), "pcie_link_width")
    fault.card.times(0.9 - 0.5 * fault.size, "pcie_bandwidth_bytes_per_second")


def _slow_network(fault: _Fault) -> None:
    fault.where.times(1.3 + 4 * fault.size, *CONGESTION)


def _slow_storage(fault: _Fault) -> None:
    starved = ("tcp_throughput_bytes_per_second", "gpu_sm_activity_ratio", "gpu_duty_cycle_ratio", POWER)
    fault.where.times(0.9 - 0.5 * fault.size, *starved)


def _group_slow(fault: _Fault) -> None:
    if fault.rng.random() < 0.5:
        fault.where.times(1.5 + 4 * fault.size, *CONGESTION)
        return
    fault.where.times(0.95 - 0.4 * fault.size, CLOCK)
    fault.where.times(0.97 - 0.25 * fault.size, POWER)


def _memory_leak(fault: _Fault) -> None:
    name, fills_s = "memory_usage_ratio", 60 + 180 * fault.size
    share_UT = np.clip((fault.recording.times_UT - fault.it.start) / fills_s, 0.0, 1.0)
    if name in fault.recording.values:
        fault.where.add((0.995 - fault.recording.values[name]) * share_UT, name)
    fault.within(fault.it.start + fills_s + 3).set(0.06, name)


def _ecc_errors(fault: _Fault) -> None:
    since_UT = np.maximum(fault.recording.times_UT - fault.it.start, 0)
    fault.card.add(np.floor(1 + since_UT * 0.05 * fault.size), "gpu_ecc_uncorrectable_total")
    fault.card.add(1.0, "gpu_rows_remapped_total")


def _link_flap(fault: _Fault) -> None:
    for start, _ in repeated(fault.recording.sketch, fault.it):
        fault.within(start).add(1.0, "link_downs_total")
        fault.within(start, start + 30).add(5 + 30 * fault.size, "link_errors_per_second")


def _silent(fault: _Fault) -> None:
    fault.recording.lost_UT |= fault.where.on_UT


def _gpu_lost(fault: _Fault) -> None:
    """Where cards are exported, `deceive` takes the card's own rows."""
    if fault.recording.sketch.cards == 1:
        fault.where.times(0.875, POWER, CLOCK, "pcie_link_width", "gpu_memory_used_ratio")


_FAULTS: dict[str, Callable[[_Fault], None]] = {
    "busy_processor": _busy_processor,
    "dirty_optics": _dirty_optics,
    "ecc_errors": _ecc_errors,
    "flat_clock": _flat_clock,
    "full_disk": lambda fault: fault.where.set(1.0, "disk_usage_ratio"),
    "gpu_lost": _gpu_lost,
    "group_silent": _silent,
    "group_slow": _group_slow,
    "link_flap": _link_flap,
    "machine_dead": _silent,
    "memory_leak": _memory_leak,
    "nvlink_lane": _nvlink_lane,
    "pcie_width": _pcie_width,
    "slow_from_start": _slow,
    "slow_gpu": _slow,
    "slow_network": _slow_network,
    "slow_storage": _slow_storage,
    "throttle_bouts": _throttle_bouts,
    "two_slow": _slow,
}


def touch_fault(recording: Recording, load: Load, it: Happening) -> None:
    """The readings that this fault changes beside the load; those that only stop the job change none."""
    for span, units_U, pace in load.held_back:  # a slow machine does the same work and moves the same bytes in a longer time
        on_UT = span.covers(recording.times_UT) & units_U[:, None]
        for name in (*WORKED, "rdma_throughput_bytes_per_second"):
            if name in recording.values:
                recording.values[name][on_UT] *= pace
    if it.name in _FAULTS:
        _FAULTS[it.name](_Fault(recording, load, it))
