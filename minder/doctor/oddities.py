"""What the newest values of a site show to be odd: fields that are switched off, another unit on one machine, machines of another size."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minder.doctor.series import Found
from minder.ingest.sources.blank import is_blank
from minder.model.metrics import find_metric

__all__ = ["Oddity", "oddities_of"]

_POWER = "gpu_power_draw_watts"
_AT_WORK_W = 150.0
_LIKE, _TIMES = 0.5, 20.0  # power like the others'; a value so many times smaller is another unit's
_SHOWN = 5
_PROFILING = "profiling fields need the profiling module and one reader at a time (dcgmi profile --pause by another tool stops them)"
_NOT_FILLED = "the job does not use that part of the GPU, or the exporter does not fill the field: nothing is seen by it until it does"


@dataclass(frozen=True, slots=True)
class Oddity:
    """seen: one line. mend: how, one line."""

    check: str
    seen: str
    mend: str


def oddities_of(placed: Sequence[tuple[str, Found]], metric_of: Mapping[str, str]) -> tuple[Oddity, ...]:
    """placed: machine and series. metric_of: exported name to the metric that is made of it."""
    by_name: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for machine, item in placed:
        if not is_blank(item.value):
            by_name[item.name][machine].append(item.value)
    power = next((found for name, found in sorted(by_name.items()) if metric_of.get(name) == _POWER), {})
    means = {name: {machine: statistics.fmean(values) for machine, values in found.items()} for name, found in by_name.items()}
    draws = next((found for name, found in sorted(means.items()) if metric_of.get(name) == _POWER), {})
    loads = {name: found for name, found in sorted(means.items()) if _is_load(metric_of.get(name, ""))}
    return (*_switched_off(loads, draws, metric_of), *_other_units(loads, draws), *_other_sizes(power))


def _is_load(name: str) -> bool:
    metric = find_metric(name)
    return metric is not None and metric.family == "gpu" and metric.unit == "ratio" and metric.synchronous


def _switched_off(loads: Mapping[str, Mapping[str, float]], draws: Mapping[str, float], metric_of: Mapping[str, str]) -> list[Oddity]:
    """Exported, and 0 on all machines while they draw power."""
    if not draws or statistics.median(draws.values()) < _AT_WORK_W:
        return []
    idle = [name for name, found in loads.items() if len(found) > 1 and not any(found.values())]
    if not idle:
        return []
    seen = f"{', '.join(sorted({metric_of[name] for name in idle}))}: 0 on every machine, though they are at work"
    mend = _PROFILING if any(name.upper().startswith("DCGM_") for name in idle) else _NOT_FILLED
    return [Oddity("values", seen, mend)]


def _other_units(loads: Mapping[str, Mapping[str, float]], draws: Mapping[str, float]) -> list[Oddity]:
    found = []
    usual_w = statistics.median(draws.values()) if draws else 0.0
    for name, values in loads.items():
        usual = statistics.median(values.values())
        small = [
            machine
            for machine, value in values.items()
            if 0.0 < value < usual / _TIMES and usual_w >= _AT_WORK_W and draws.get(machine, 0.0) > _LIKE * usual_w
        ]
        if small and len(small) < len(values) / 2:
            times = usual / statistics.fmean(values[machine] for machine in small)
            seen = f"{name} of {', '.join(small[:_SHOWN])} is {times:.0f} times smaller than the others', at the same power"
            found.append(Oddity("values", seen, "its exporter may be another version with another unit: give all machines the same one"))
    return found


def _other_sizes(power: Mapping[str, Sequence[float]]) -> list[Oddity]:
    counts = {machine: len(values) for machine, values in power.items()}
    if len(set(counts.values())) < 2:
        return []
    usual = statistics.mode(counts.values())
    other = [f"{machine} has {count}" for machine, count in counts.items() if count != usual]
    seen = f"most machines have {usual} GPUs; {', '.join(other[:_SHOWN])}{', ...' if len(other) > _SHOWN else ''}"
    return [Oddity("devices", seen, "take machines that are not the job's (login nodes) out of job.toml, or find the GPUs that are lost")]
