"""When to look closer: Mycroft's always-on rules over a window of completed operations (seed-systems.md section 1.1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from minder.types import Sample

__all__ = ["WINDOW_S", "Alarm", "Completion", "Normal", "check_window", "port_throughput"]

WINDOW_S = 10.0
_SLOW_SHARE = 0.5  # a fifth less is normal where communication overlaps with computation
_LONG_TIMES = 2.0
_LEAST_COMPLETIONS = 3

Alarm = Literal["failure", "straggler"]


@dataclass(frozen=True, slots=True)
class Completion:
    """One finished operation of one sampled rank."""

    time_s: float
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Normal:
    """What the last quiet window looked like."""

    throughput_bytes_per_s: float
    interval_s: float


def check_window(
    completions: Sequence[Completion], now_s: float, in_flight: bool, normal: Normal | None, window_s: float = WINDOW_S
) -> tuple[Alarm | None, Normal | None]:
    """(alarm, what is normal from now on) for the window that ends at `now_s`.

    Failure: operations are in flight and none completed. Straggler: throughput under half of normal, or the time between
    completions over twice. A quiet window becomes the new normal; an alarm does not, nor a window without traffic: that is no data.
    """
    inside = sorted((one for one in completions if now_s - window_s < one.time_s <= now_s), key=lambda one: one.time_s)
    if not inside:
        return ("failure" if in_flight else None), normal
    throughput = sum(one.size_bytes for one in inside) / window_s
    if len(inside) < _LEAST_COMPLETIONS:
        slow = normal is not None and window_s / len(inside) > _LONG_TIMES * normal.interval_s
        return ("straggler" if slow else None), normal
    interval_s = (inside[-1].time_s - inside[0].time_s) / (len(inside) - 1)
    if normal is not None and (
        throughput < _SLOW_SHARE * normal.throughput_bytes_per_s or interval_s > _LONG_TIMES * max(normal.interval_s, 1e-9)
    ):
        return "straggler", normal
    return None, Normal(throughput, interval_s)


def port_throughput(samples: Iterable[Sample], now_s: float, window_s: float = WINDOW_S) -> dict[str, float]:
    """Mean bytes per second of each machine's network ports in the window, from /sys/class/infiniband as the agent exports it.

    A port counts no operations: its throughput stands beside `Normal.throughput_bytes_per_s`, its silence alone proves nothing.
    """
    rates: dict[str, dict[str | None, list[float]]] = {}
    for sample in samples:
        value = sample.values.get("rdma_throughput_bytes_per_second")
        if value is not None and now_s - window_s < sample.time_s <= now_s:
            rates.setdefault(sample.machine, {}).setdefault(sample.device, []).append(value)
    return {machine: sum(sum(values) / len(values) for values in ports.values()) for machine, ports in rates.items()}
