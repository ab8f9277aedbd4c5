"""What happenings do to metrics that load does not explain: clocks, counters, frozen and missing readings, other units.

Legend: U units, T scrapes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minder.simulate.worlds.families.measured.load import Load, Span, bouts, checkpoints, repeated
from minder.simulate.worlds.families.measured.process import Recording
from minder.simulate.worlds.families.measured.sketch import OF_GPU, Happening, rng_for

__all__ = ["deceive", "touch", "warm"]

_CONGESTION = ("pfc_tx_packets_per_second", "ecn_packets_per_second", "cnp_packets_per_second", "rdma_xmit_wait_per_second")
_WORKED = ("gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio", "nvlink_bandwidth_bytes_per_second")
_CLOCK, _POWER, _CPU = "gpu_clock_hertz", "gpu_power_draw_watts", "cpu_usage_ratio"


class _Where:
    """The cells of a recording that one happening touches."""

    def __init__(self, recording: Recording, load: Load, it: Happening, span: Span | None = None, card: bool = False) -> None:
        span = span or Span(it.start, it.end)
        units_U = load.units(it.who, it.card if card else -1)
        self.values = recording.values
        self.on_UT = span.covers(recording.times_UT) & units_U[:, None]

    def times(self, factor: float, *names: str) -> None:
        for name in names:
            if name in self.values:
                self.values[name][self.on_UT] *= factor

    def add(self, amount: float | np.ndarray, *names: str) -> None:
        for name in names:
            if name in self.values:
                self.values[name][self.on_UT] += amount if np.isscalar(amount) else np.asarray(amount)[self.on_UT]

    def set(self, value: float, *names: str) -> None:
        for name in names:
            if name in self.values:
                self.values[name][self.on_UT] = value

    def freeze(self, *names: str) -> None:
        for name in names:
            for unit in np.flatnonzero(self.on_UT.any(axis=1)):
                first = max(0, int(np.argmax(self.on_UT[unit])) - 1)
                self.values[name][unit, self.on_UT[unit]] = self.values[name][unit, first]


def _touch_fault(recording: Recording, load: Load, it: Happening) -> None:
    rng, size = rng_for(recording.sketch.seed, "touch", it.name), it.size
    where = _Where(recording, load, it)
    card = _Where(recording, load, it, card=True)
    match it.name:
        case "slow_gpu" | "slow_from_start" | "two_slow":
            card.times(0.92 - 0.57 * size, *_WORKED)
            card.times(0.99 - 0.2 * size, _POWER)
        case "busy_processor":
            where.add(0.15 + 0.6 * size, _CPU)
            where.times(0.93 - 0.5 * size, "gpu_sm_activity_ratio", "gpu_duty_cycle_ratio", *_WORKED)
        case "dirty_optics":
            where.times(2.0 + 6.0 * size, *_CONGESTION)
            where.add(rng.poisson(1 + 30 * size, recording.times_UT.shape).astype(float), "link_errors_per_second")
            where.add(2.0 + 5 * size, "tcp_retransmits_per_second")
        case "flat_clock":
            if _CLOCK in recording.values:
                card.set(float(np.round(recording.values[_CLOCK].max() * (0.88 - 0.35 * size), -7)), _CLOCK)
        case "throttle_bouts":
            card = _Where(recording, load, it, bouts(recording.sketch, it), card=True)
            card.times(0.9 - 0.45 * size, _CLOCK, *_WORKED)
            card.times(0.95 - 0.35 * size, _POWER)
            card.set(float(rng.choice([8, 32, 64])), "gpu_throttle_reasons")
        case "nvlink_lane":
            card.times(0.94 - 0.44 * size, "nvlink_bandwidth_bytes_per_second")
        case "pcie_width":
            card.set(8.0 if size < 0.5 else float(rng.choice([1, 2, 4])), "pcie_link_width")
            card.times(0.9 - 0.5 * size, "pcie_bandwidth_bytes_per_second")
        case "slow_network":
            where.times(0.97 - 0.2 * size, "rdma_throughput_bytes_per_second")
            where.times(1.3 + 4 * size, *_CONGESTION)
        case "slow_storage":
            where.times(0.9 - 0.5 * size, "tcp_throughput_bytes_per_second", "gpu_sm_activity_ratio", "gpu_duty_cycle_ratio", _POWER, *_WORKED)
        case "group_slow":
            _touch_group(recording, where, rng, size)
        case "memory_leak":
            full = 60 + 180 * size
            share_UT = np.clip((recording.times_UT - it.start) / full, 0.0, 1.0)
            if "memory_usage_ratio" in recording.values:
                where.add((0.995 - recording.values["memory_usage_ratio"]) * share_UT, "memory_usage_ratio")
            _Where(recording, load, it, Span(it.start + full + 3, np.inf)).set(0.06, "memory_usage_ratio")
        case "full_disk":
            where.set(1.0, "disk_usage_ratio")
        case "ecc_errors":
            counts_UT = np.floor(1 + np.maximum(recording.times_UT - it.start, 0) * 0.05 * size)
            card.add(counts_UT, "gpu_ecc_uncorrectable_total")
            card.add(1.0, "gpu_rows_remapped_total")
        case "link_flap":
            for start, _ in repeated(recording.sketch, it):
                _Where(recording, load, it, Span(start, np.inf)).add(1.0, "link_downs_total")
                _Where(recording, load, it, Span(start, start + 30)).add(5 + 30 * size, "link_errors_per_second")
        case _:
            _touch_stopped(recording, load, it)


def _touch_group(recording: Recording, where: _Where, rng: np.random.Generator, size: float) -> None:
    if rng.random() < 0.5:
        where.times(1.5 + 4 * size, *_CONGESTION)
        return
    where.times(0.95 - 0.4 * size, _CLOCK, *_WORKED)
    where.times(0.97 - 0.25 * size, _POWER)


def _touch_stopped(recording: Recording, load: Load, it: Happening) -> None:
    """Machines that are off or have lost a card. What froze is frozen last, by `deceive`."""
    where, sketch = _Where(recording, load, it), recording.sketch
    if it.name in ("machine_dead", "group_silent"):
        recording.lost_UT |= where.on_UT
    if it.name == "gpu_lost" and sketch.cards == 1:
        where.times(0.875, _POWER, _CLOCK, "pcie_link_width", "gpu_memory_used_ratio")


def _touch_cause(recording: Recording, load: Load, it: Happening) -> None:
    where = _Where(recording, load, it)
    match it.name:
        case "congestion":
            where.times(1.5 + 8 * it.size, *_CONGESTION)
            where.add(1 + 6 * it.size, "tcp_retransmits_per_second")
        case "power_cap":
            where.times(0.95 - 0.3 * it.size, _CLOCK, _POWER, *_WORKED)
            where.set(4.0, "gpu_throttle_reasons")
        case "compilation":
            where.add(0.3 + 0.3 * it.size, _CPU)
        case "evaluation":
            where.times(0.03, "rdma_throughput_bytes_per_second", *_CONGESTION)
            where.times(0.7, _POWER, *_WORKED)
        case "load_shift":
            where.times(0.85 + 0.3 * it.size, _POWER, "gpu_sm_activity_ratio", *_WORKED)
            where.times(1.25 - 0.5 * it.size, "rdma_throughput_bytes_per_second", "gpu_memory_used_ratio")
        case "loading_slow":
            where.add(0.2 * it.size, _CPU)
        case "job_ends":
            recording.lost_UT |= Span(it.start + 60 + 200 * it.size, np.inf).covers(recording.times_UT)


def _touch_nuisance(recording: Recording, load: Load, it: Happening) -> None:
    where = _Where(recording, load, it)
    match it.name:
        case "agent_lost" | "agent_restart":
            recording.lost_UT |= where.on_UT
        case "evaluation_agent":
            recording.lost_UT |= _Where(recording, load, it, Span(it.start, it.start + 20 + 60 * it.size)).on_UT
        case "second_tenant":
            where.add(0.08 + 0.4 * it.size, _CPU)
            where.add(0.1, "memory_usage_ratio")
            where.times(1.5 + 3 * it.size, "tcp_throughput_bytes_per_second")
        case "rank0_writes":
            for span in checkpoints(recording.sketch):
                _Where(recording, load, it, Span(span.end, span.end + 4.0 + 25.0 * it.size)).add(0.1, _CPU)


def touch(recording: Recording, load: Load) -> None:
    """All that happens, in the readings themselves."""
    sketch = recording.sketch
    for nuisance in sketch.nuisances:
        _touch_nuisance(recording, load, nuisance)
    if sketch.cause is not None:
        _touch_cause(recording, load, sketch.cause)
    if sketch.fault is not None:
        _touch_fault(recording, load, sketch.fault)


def warm(recording: Recording, load: Load) -> None:
    """Temperature: a first-order lag behind the power of each card, with an offset by slot (7 to 12 degrees between slots)."""
    sketch = recording.sketch
    rng, units = rng_for(sketch.seed, "warm"), sketch.units
    slots = rng.uniform(7.0, 12.0) * rng.permutation(np.linspace(0, 1, max(2, sketch.cards)))[: sketch.cards]
    offset_U = 29.0 + np.tile(slots, sketch.count) + rng.normal(0.0, 2.0, units)
    power_UT = np.nan_to_num(recording.values[_POWER])
    target_UT = offset_U[:, None] + float(rng.uniform(0.042, 0.06)) * power_UT
    mixed = 1.0 - float(np.exp(-sketch.interval_s / rng.uniform(12.0, 30.0)))
    warm_UT = np.empty_like(target_UT)
    now_U = target_UT[:, 0]
    for scrape in range(target_UT.shape[1]):
        now_U = now_U + mixed * (target_UT[:, scrape] - now_U)
        warm_UT[:, scrape] = now_U
    recording.values["gpu_temperature_celsius"] = warm_UT
    for it in (*sketch.nuisances, *((sketch.fault,) if sketch.fault else ())):
        if it.name in ("hot_aisle", "throttle_bouts"):
            _Where(recording, load, it, card=it.name != "hot_aisle").add(3 + 9 * it.size, "gpu_temperature_celsius")


_UNITS = {
    "gpu_clock_hertz": 1e-6,
    "rdma_throughput_bytes_per_second": 8.0,
    "cpu_usage_ratio": 0.01,
    "gpu_sm_activity_ratio": 0.01,
    "gpu_power_draw_watts": 1e-3,
    "tcp_throughput_bytes_per_second": 1 / 1024,
    "gpu_temperature_celsius": 1.8,
}


def _blank_card(recording: Recording, load: Load, it: Happening) -> None:
    """A card that is gone shows nothing, or 0, in each of its metrics."""
    shown = np.nan if rng_for(recording.sketch.seed, "blank").random() < 0.6 else 0.0
    _Where(recording, load, replace(it, card=max(it.card, 0)), card=True).set(shown, *OF_GPU)


def deceive(recording: Recording, load: Load) -> None:
    """What exporters make of rounded readings: other units, stuck gauges, zeros, frozen rows."""
    sketch = recording.sketch
    for it in sketch.nuisances:
        where = _Where(recording, load, it)
        rng = rng_for(sketch.seed, "deceive", it.name)
        one = str(rng.choice(sketch.metrics))
        match it.name:
            case "unit_change":
                known = [name for name in _UNITS if name in sketch.metrics] or [one]
                name = str(rng.choice(known))
                where.times(_UNITS.get(name, 1.0), name)
            case "broken_metric":
                where.times(float(rng.choice([0.15, 0.4, 0.6])), one)
            case "stuck_gauge":
                where.freeze(one)
            case "zero_for_missing":
                where.set(0.0, one)
            case "exporter_freeze":
                where.freeze(*sketch.metrics)
    if sketch.fault is not None and sketch.fault.name == "gpu_lost" and sketch.cards > 1:
        _blank_card(recording, load, sketch.fault)
    if sketch.fault is not None and sketch.fault.name == "frozen_gauges":
        only_gpu = bool(rng_for(sketch.seed, "frozen").random() < 0.5)
        shown = [name for name in sketch.metrics if name in OF_GPU] if only_gpu else []
        _Where(recording, load, sketch.fault).freeze(*(shown or sketch.metrics))
