"""What the monitoring makes of the truth: scrapes at each machine's own offset, gaps, lost values, rows of separate exporters, bad clocks.

Legend: T ticks, M machines, K metrics, N scrapes of a machine, R rows of the table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.cluster.levels import MetricModel
from minder.simulate.cluster.recipe import MonitoringRules
from minder.simulate.cluster.scene import Scene

__all__ = ["Rows", "Site", "draw_site", "scrape"]

_HOST = ("cpu", "memory", "disk", "tcp", "throttle", "retransmits")
_NETWORK = ("congestion", "fabric")


@dataclass(frozen=True, slots=True)
class Site:
    """How a site measures. separate: its exporters (host, GPU, network) answer in rows of their own."""

    interval_s: float
    models: tuple[MetricModel, ...]
    separate: bool
    whole_numbers: bool
    events: bool
    signals: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """A wide table: time_R in milliseconds since the start, machine_R indices, values_RK with NaN for "no data"."""

    time_R: np.ndarray
    machine_R: np.ndarray
    values_RK: np.ndarray


def draw_site(rules: MonitoringRules, models: tuple[MetricModel, ...], rng: np.random.Generator) -> Site:
    """One site; it exports something of the GPUs, the network or the sockets, or no job there could be watched."""
    low, high = rules.few if rng.random() < rules.few_share else rules.metrics
    count = min(int(rng.integers(low, high + 1)), len(models))
    telling = [k for k, model in enumerate(models) if model.group in ("duty", "power", "compute", "fabric")]
    kept = {int(rng.choice(telling))}
    order = [int(k) for k in rng.permutation(len(models)) if int(k) not in kept]
    kept.update(order[: count - 1])
    chosen = tuple(model for k, model in enumerate(models) if k in kept)
    events = bool(rng.random() < rules.events_share)
    return Site(
        float(rng.choice(rules.intervals_s)), chosen, bool(rng.random() < rules.separate_rows_share),
        bool(rng.random() < rules.whole_numbers_share), events, events and bool(rng.random() < rules.signals_share),
    )  # fmt: skip


def scrape(scene: Scene, site: Site, values_TMK: np.ndarray) -> Rows:
    """Rows in time order of the machines' own clocks."""
    rng, rules = scene.streams.of("scrape"), scene.recipe.monitoring
    values_TMK = _averaged(scene, site, values_TMK)
    parts = [_part(scene, site, values_TMK, kept, rng) for kept in _exporters(site)]
    time_R = np.concatenate([part.time_R for part in parts])
    machine_R = np.concatenate([part.machine_R for part in parts])
    values_RK = np.concatenate([part.values_RK for part in parts])
    values_RK = _resolve(site, values_RK)
    values_RK[rng.random(values_RK.shape) < rules.lost_values] = np.nan
    order_R = np.lexsort((machine_R, time_R))
    return Rows(time_R[order_R], machine_R[order_R], values_RK[order_R])


def _exporters(site: Site) -> list[np.ndarray]:
    """Which metrics each exporter of a machine carries."""
    groups = [model.group for model in site.models]
    host_K = np.array([group in _HOST for group in groups])
    network_K = np.array([group in _NETWORK for group in groups])
    split = [kept_K for kept_K in (host_K, network_K, ~host_K & ~network_K) if kept_K.any()]
    return split if site.separate else [np.ones(len(groups), dtype=bool)]


def _part(scene: Scene, site: Site, values_TMK: np.ndarray, kept_K: np.ndarray, rng: np.random.Generator) -> Rows:
    """The rows of one exporter of every machine."""
    rules, interval_s = scene.recipe.monitoring, site.interval_s
    count = int(scene.duration_s / interval_s)
    offset_M = rng.uniform(0.0, interval_s, scene.machines)
    jitter_NM = rng.normal(0.0, rules.scrape_jitter * interval_s, (count, scene.machines)).clip(-0.3 * interval_s, 0.3 * interval_s)
    time_NM = np.clip(np.arange(count)[:, None] * interval_s + offset_M + jitter_NM, 0.0, scene.duration_s - 1e-3)
    tick_NM = np.minimum((time_NM / scene.tick_s).astype(np.int64), scene.ticks - 1)
    machine_NM = np.broadcast_to(np.arange(scene.machines), tick_NM.shape)
    kept_NM = (rng.random(tick_NM.shape) >= rules.lost_scrapes) & ~scene.silent_TM[tick_NM, machine_NM]
    kept_NM &= ~_holes(scene, site, tick_NM, rng)
    tick_R, machine_R = tick_NM[kept_NM], machine_NM[kept_NM]
    values_RK = values_TMK[tick_R, machine_R]
    values_RK[:, ~kept_K] = np.nan
    time_R = np.round((time_NM + scene.skew_M)[kept_NM] * 1000.0).astype(np.int64)
    return Rows(time_R, machine_R, values_RK)


def _holes(scene: Scene, site: Site, tick_NM: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Gaps of a machine, half a minute at the most, one an hour."""
    time_NM = tick_NM * scene.tick_s
    holes_NM = np.zeros(tick_NM.shape, dtype=bool)
    for machine in np.nonzero(rng.random(scene.machines) < scene.duration_s / 3600.0)[0]:
        begin_s = rng.uniform(0.0, scene.duration_s)
        end_s = begin_s + rng.uniform(5.0, 25.0)
        holes_NM[:, machine] = (time_NM[:, machine] >= begin_s) & (time_NM[:, machine] < end_s)
    return holes_NM


def _averaged(scene: Scene, site: Site, values_TMK: np.ndarray) -> np.ndarray:
    """Rates of counters are means over the scrape interval that ends at the scrape; gauges are what they are at that moment."""
    width = round(site.interval_s / scene.tick_s)
    if width <= 1:
        return values_TMK
    for k, model in enumerate(site.models):
        if model.averaged:
            sum_TM = np.cumsum(values_TMK[:, :, k], axis=0)
            behind_TM = np.concatenate([np.zeros((1, scene.machines)), sum_TM])[np.maximum(np.arange(scene.ticks) - width + 1, 0)]
            values_TMK[:, :, k] = (sum_TM - behind_TM) / np.minimum(np.arange(scene.ticks) + 1, width)[:, None]
    return values_TMK


def _resolve(site: Site, values_RK: np.ndarray) -> np.ndarray:
    """Sensors have a resolution; many give whole percents and degrees."""
    whole = {"duty": 0.01, "temperature": 1.0, "gpu_memory": 0.01, "power": 1.0}
    step_K = np.array([whole.get(model.group, model.step) if site.whole_numbers else model.step for model in site.models])
    return np.asarray(np.round(values_RK / step_K) * step_K)
