"""Rows as a site's scrapes bring them: offsets, jitter and losses, marks of the story, rounding, GPU rows and host rows.

Legend: M machines, R servers, T scrapes, N rows, K metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.queue.gauges import Gauges
from minder.simulate.worlds.families.queue.layout import GPU_METRICS, Layout, stream
from minder.simulate.worlds.families.queue.story import Mark

__all__ = ["Rows", "scrape"]

_MOST = {"_ratio": 1.0, "gpu_power_draw_watts": 5000.0}
_ROUNDED = {"gpu_temperature_celsius": 1.0, "gpu_clock_hertz": 15e6, "pcie_link_width": 1.0}


@dataclass(frozen=True, slots=True)
class Rows:
    """times_N: seconds since the start. server_N: machine x GPUs + GPU. device_N: GPU, -1 for the whole machine."""

    times_N: np.ndarray
    server_N: np.ndarray
    device_N: np.ndarray
    values_NK: np.ndarray


def _is_on(mark: Mark, times_RT: np.ndarray) -> np.ndarray:
    on_RT = (times_RT >= mark.start) & (times_RT < mark.end) & mark.who_R[:, None]
    if mark.period_s:
        on_RT &= (times_RT - mark.start) % mark.period_s < mark.on_s
    return np.asarray(on_RT)


def _freeze(values_RT: np.ndarray, on_RT: np.ndarray) -> None:
    """From its first frozen scrape on a server shows what it showed at the scrape before."""
    for server in np.flatnonzero(on_RT.any(axis=1)):
        first = int(np.argmax(on_RT[server]))
        values_RT[server, on_RT[server]] = values_RT[server, max(0, first - 1)]


def _apply(mark: Mark, values_RT: np.ndarray, times_RT: np.ndarray, events_RT: np.ndarray) -> None:
    """events_RT: standard normal numbers, for marks that count events."""
    on_RT = _is_on(mark, times_RT)
    match mark.do:
        case "times":
            values_RT[on_RT] *= mark.value
        case "add":
            values_RT[on_RT] += mark.value
        case "count":
            values_RT[on_RT] += np.maximum(0.0, mark.value + np.sqrt(mark.value) * events_RT[on_RT])
        case "set":
            values_RT[on_RT] = mark.value
        case "blank":
            values_RT[on_RT] = np.nan
        case "climb":
            values_RT[on_RT] += np.floor(1.0 + mark.value * (times_RT[on_RT] - mark.start))
        case "to":
            part = (times_RT[on_RT] - mark.start) / (mark.end - mark.start)
            values_RT[on_RT] += (mark.value - values_RT[on_RT]) * part
        case "freeze":
            _freeze(values_RT, on_RT)


def _limit(name: str, values_RT: np.ndarray) -> np.ndarray:
    most = next((most for ending, most in _MOST.items() if name.endswith(ending)), np.inf)
    return np.asarray(np.clip(values_RT, 0.0, most))


def _round(name: str, values_RT: np.ndarray, percent: bool) -> np.ndarray:
    step = _ROUNDED.get(name, 0.01 if percent and name.endswith(("duty_cycle_ratio", "cpu_usage_ratio")) else 0.0)
    return np.round(values_RT / step) * step if step else values_RT


class _Scrapes:
    def __init__(self, layout: Layout, gauges: Gauges, marks: list[Mark]) -> None:
        self.layout, self.gauges, self.marks = layout, gauges, marks
        self.percent = bool(stream(layout.seed, "rounding").random() < 0.7)

    def times(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """(M, T) seconds, and which scrapes came back."""
        rng, layout = stream(self.layout.seed, "scrapes " + name), self.layout
        machines, scrapes = len(layout.machines), int(layout.duration_s / layout.interval_s)
        offset_M = rng.uniform(0.0, layout.interval_s, machines)
        jitter_MT = np.abs(rng.normal(0.0, 0.01 * layout.interval_s, (machines, scrapes)))
        times_MT = np.arange(scrapes) * layout.interval_s + offset_M[:, None] + jitter_MT
        return np.minimum(times_MT, layout.duration_s), rng.random((machines, scrapes)) >= layout.loss

    def values(self, names: tuple[str, ...], times_RT: np.ndarray, late_R: np.ndarray) -> np.ndarray:
        """(R, T, metrics), with what changes the reading, then rounded as a site does, then with what the exporter makes of it."""
        seen_RT = times_RT - late_R[:, None]
        read = self.gauges.read(names, seen_RT)
        events_RT = stream(self.layout.seed, "events").standard_normal(times_RT.shape)
        for name, values_RT in read.items():
            marks = [mark for mark in self.marks if mark.do != "silent" and (not mark.metrics or name in mark.metrics)]
            for mark in (mark for mark in marks if not mark.lie):
                _apply(mark, values_RT, times_RT, events_RT)
            read[name] = _round(name, _limit(name, values_RT), self.percent)
            for mark in (mark for mark in marks if mark.lie):
                _apply(mark, read[name], times_RT, events_RT)
            read[name] = _limit(name, read[name])
        return np.stack([read[name] for name in names], axis=-1)

    def silent(self, times_RT: np.ndarray) -> np.ndarray:
        """Which rows never came."""
        out_RT = np.zeros(times_RT.shape, dtype=bool)
        for mark in self.marks:
            if mark.do == "silent":
                out_RT |= _is_on(mark, times_RT)
        return out_RT

    def rows(self, name: str, shown: tuple[str, ...], every_gpu: bool) -> Rows:
        """The rows of one exporter; of every GPU, or of the machine."""
        layout = self.layout
        times_MT, here_MT = self.times(name)
        times_RT = np.repeat(times_MT, layout.gpus, axis=0)
        late_R = np.repeat(stream(layout.seed, "late").uniform(0.0, min(1.0, layout.interval_s / 2), len(layout.machines)), layout.gpus)
        values_RTK = self.values(tuple(n for n in layout.metrics if n in shown), times_RT, late_R)
        keep_RT = np.repeat(here_MT, layout.gpus, axis=0) & ~self.silent(times_RT)
        if not every_gpu:
            keep_RT &= (np.arange(layout.servers) % layout.gpus == 0)[:, None]
        server_N, scrape_N = np.nonzero(keep_RT)
        wide_NK = np.full((len(server_N), len(layout.metrics)), np.nan)
        wide_NK[:, [k for k, n in enumerate(layout.metrics) if n in shown]] = values_RTK[server_N, scrape_N]
        device_N = server_N % layout.gpus if every_gpu else np.full(len(server_N), -1)
        return Rows(times_RT[server_N, scrape_N], server_N, device_N, wide_NK)


def scrape(layout: Layout, gauges: Gauges, marks: list[Mark]) -> Rows:
    """All rows of the world, in time order."""
    scrapes = _Scrapes(layout, gauges, marks)
    shown = frozenset(layout.metrics)
    of_gpus, of_host = tuple(shown & GPU_METRICS), tuple(shown - GPU_METRICS)
    if layout.gpus == 1 and not layout.two_exporters:
        parts = [scrapes.rows("one", tuple(shown), every_gpu=False)]
    else:
        parts = [scrapes.rows("one", of_gpus, every_gpu=layout.gpus > 1)]
        if of_host:
            parts.append(scrapes.rows("two" if layout.two_exporters else "one", of_host, every_gpu=False))
    times_N = np.concatenate([part.times_N for part in parts])
    order = np.argsort(times_N, kind="stable")
    server_N, device_N = (np.concatenate([getattr(part, name) for part in parts])[order] for name in ("server_N", "device_N"))
    return Rows(times_N[order], server_N, device_N, np.concatenate([part.values_NK for part in parts])[order])
