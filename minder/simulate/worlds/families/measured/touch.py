"""What causes and nuisances do to metrics that load does not explain, temperature, and what exporters make of the readings.

Legend: U units, T scrapes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minder.simulate.worlds.families.measured.cells import CLOCK, CONGESTION, CPU, POWER, WORKED, Where
from minder.simulate.worlds.families.measured.faults import touch_fault
from minder.simulate.worlds.families.measured.load import Load, Span, checkpoints, stops_at
from minder.simulate.worlds.families.measured.process import Recording
from minder.simulate.worlds.families.measured.sketch import OF_GPU, Happening, rng_for

__all__ = ["deceive", "touch", "warm"]


def _touch_cause(recording: Recording, load: Load, it: Happening) -> None:
    where = Where(recording, load, it)
    match it.name:
        case "congestion":
            where.times(1.5 + 8 * it.size, *CONGESTION)
            where.add(1 + 6 * it.size, "tcp_retransmits_per_second")
        case "power_cap":
            where.times(0.95 - 0.3 * it.size, CLOCK, POWER, *WORKED)
            where.set(4.0, "gpu_throttle_reasons")
        case "compilation":
            where.add(0.3 + 0.3 * it.size, CPU)
        case "evaluation":
            where.times(0.03, "rdma_throughput_bytes_per_second", *CONGESTION)
            where.times(0.7, POWER, *WORKED)
        case "load_shift":
            where.times(0.85 + 0.3 * it.size, POWER, "gpu_sm_activity_ratio", *WORKED)
            where.times(1.25 - 0.5 * it.size, "rdma_throughput_bytes_per_second", "gpu_memory_used_ratio")
        case "loading_slow":
            where.add(0.2 * it.size, CPU)
        case "job_ends":
            recording.lost_UT |= Span(it.start + 60 + 200 * it.size, np.inf).covers(recording.times_UT)


def _touch_nuisance(recording: Recording, load: Load, it: Happening) -> None:
    where = Where(recording, load, it)
    match it.name:
        case "agent_lost" | "agent_restart":
            recording.lost_UT |= where.on_UT
        case "evaluation_agent":
            recording.lost_UT |= Where(recording, load, it, Span(it.start, it.start + 20 + 60 * it.size)).on_UT
        case "second_tenant":
            where.add(0.08 + 0.4 * it.size, CPU)
            where.add(0.1, "memory_usage_ratio")
            where.times(1.5 + 3 * it.size, "tcp_throughput_bytes_per_second")
        case "rank0_writes":
            for span in checkpoints(recording.sketch):
                Where(recording, load, it, Span(span.end, span.end + 4.0 + 25.0 * it.size)).add(0.1, CPU)


def touch(recording: Recording, load: Load) -> None:
    """All that happens, in the readings themselves."""
    sketch = recording.sketch
    for nuisance in sketch.nuisances:
        _touch_nuisance(recording, load, nuisance)
    if sketch.cause is not None and sketch.cause.start <= stops_at(sketch):
        _touch_cause(recording, load, sketch.cause)
    if sketch.fault is not None:
        touch_fault(recording, load, sketch.fault)


def warm(recording: Recording, load: Load) -> None:
    """Temperature: a first-order lag behind the power of each card, with an offset by slot (7 to 12 degrees between slots)."""
    sketch = recording.sketch
    rng, units = rng_for(sketch.seed, "warm"), sketch.units
    slots = rng.uniform(7.0, 12.0) * rng.permutation(np.linspace(0, 1, max(2, sketch.cards)))[: sketch.cards]
    offset_U = 29.0 + np.tile(slots, sketch.count) + rng.normal(0.0, 2.0, units)
    power_UT = np.nan_to_num(recording.values[POWER])
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
            Where(recording, load, it, card=it.name != "hot_aisle").add(3 + 9 * it.size, "gpu_temperature_celsius")


_STILL = ("_total", "_width", "_reasons", "_errors_per_second", "_retransmits_per_second")
_FAMILIES = (
    ("gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_fp_activity_ratio", "gpu_graphics_activity_ratio"),
    ("gpu_power_draw_watts", "gpu_temperature_celsius"),
    ("nvlink_bandwidth_bytes_per_second", "pcie_bandwidth_bytes_per_second"),
    ("rdma_throughput_bytes_per_second", *CONGESTION),
)
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
    Where(recording, load, replace(it, card=max(it.card, 0)), card=True).set(shown, *OF_GPU)


def deceive(recording: Recording, load: Load) -> None:
    """What exporters make of rounded readings: other units, stuck gauges, zeros, frozen rows."""
    sketch = recording.sketch
    for it in sketch.nuisances:
        where = Where(recording, load, it)
        rng = rng_for(sketch.seed, "deceive", it.name)
        one = str(rng.choice([name for name in sketch.metrics if not name.endswith(_STILL)]))
        match it.name:
            case "unit_change":
                known = [name for name in _UNITS if name in sketch.metrics] or [one]
                name = str(rng.choice(known))
                where.times(_UNITS.get(name, 1.0), name)
            case "broken_metric":
                family = next((group for group in _FAMILIES if one in group), (one,))
                where.times(float(rng.choice([0.15, 0.4, 0.6])), *family)
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
        Where(recording, load, sketch.fault).freeze(*(shown or sketch.metrics))
