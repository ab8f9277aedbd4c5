"""What a site's monitoring keeps of a scene: when each exporter is scraped, what it spoils, and all rows in one table.

Legend: N rows, R scrapes of a machine, M machines, G rows of a machine, K metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.trace.job import Job
from minder.simulate.worlds.families.trace.monitors import Sheet, fabric_monitor, gpu_monitor, job_log, node_monitor, read_scene
from minder.simulate.worlds.families.trace.scene import Blemish, Scene
from minder.simulate.worlds.families.trace.tables import METRICS

__all__ = ["Rows", "record"]

_FABRIC = ("rdma", "pfc", "ecn", "cnp", "link_")
_COUNTS = frozenset({"link_downs_total", "gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total"})


@dataclass(frozen=True, slots=True)
class Rows:
    """The table: times_N in UTC seconds as the machines stamp them, machine_N, device_N (-1: whole machine), values_NK of `metrics`."""

    metrics: tuple[str, ...]
    times_N: np.ndarray
    machine_N: np.ndarray
    device_N: np.ndarray
    values_NK: np.ndarray


def _owner(metric: str) -> str:
    if metric.startswith(("gpu", "nvlink", "pcie")):
        return "gpu"
    if metric.startswith("step"):
        return "job"
    return "fabric" if metric.startswith(_FABRIC) else "node"


def _times(job: Job, exporter: str, period_s: float) -> np.ndarray:
    """(R, M) seconds of the trace at which one exporter is scraped: in turn where one poller goes round, else at each machine's own."""
    rng = job.random(f"times of {exporter}")
    n, scrapes = job.machines, max(int(job.duration_s / period_s), 3)
    in_turn = exporter == "fabric" or rng.random() < 0.2
    offset_M = np.arange(n) / n * min(period_s, 5.0) + rng.uniform(0, 1) if in_turn else rng.uniform(0, period_s, n)
    late_RM = np.minimum(rng.pareto(2.5, (scrapes, n)) * 0.05, 0.4 * period_s)
    drift_M = 1 + 2e-5 * rng.standard_normal(n)
    times_RM = (offset_M + np.arange(scrapes)[:, None] * period_s * drift_M) + late_RM
    return np.asarray(np.minimum(times_RM, job.duration_s))


def _sheets(scene: Scene) -> list[Sheet]:
    job, reading, rng = scene.job, read_scene(scene), scene.job.random("exporters")
    one_agent = not job.gpus and rng.random() < 0.35
    slower = {"gpu": 1.0, "node": float(rng.choice([1, 1, 2])), "fabric": float(rng.choice([1, 2, 3])), "job": float(rng.choice([1, 1, 2]))}
    writers = {"gpu": gpu_monitor, "node": node_monitor, "fabric": fabric_monitor, "job": job_log}
    sheets = []
    for exporter, write in writers.items():
        names = tuple(name for name in (*METRICS, "step_seconds", "steps_total") if name in job.shown and _owner(name) == exporter)
        if names:
            period = job.scrape_s if one_agent else min(slower[exporter] * job.scrape_s, 30.0)
            sheets.append(write(reading, _times(job, "agent" if one_agent else exporter, period), names))
    if not one_agent:
        return sheets
    there = np.ones_like(sheets[0].there_RMG)
    for sheet in sheets:
        sheet.values_RMGK[~sheet.there_RMG] = np.nan
    merged = np.concatenate([sheet.values_RMGK for sheet in sheets], axis=-1)
    return [Sheet("all", tuple(name for sheet in sheets for name in sheet.names), sheets[0].times_RM, merged, there)]


def _spoil(sheet: Sheet, blemish: Blemish, rng: np.random.Generator) -> None:
    m = blemish.machine
    inside = np.flatnonzero((sheet.times_RM[:, m] >= blemish.start_s) & (sheet.times_RM[:, m] < blemish.end_s))
    columns = [
        k
        for k, name in enumerate(sheet.names)
        if (blemish.exporter in ("all", _owner(name))) and blemish.metric in (None, name) and (blemish.how != "recount" or name in _COUNTS)
    ]
    if not inside.size or not columns:
        return
    span = slice(inside[0], inside[-1] + 1)
    if blemish.how == "silent":
        if blemish.exporter in ("all", sheet.exporter):
            sheet.there_RMG[span, m] = False
        return
    for k in columns:
        cells = sheet.values_RMGK[span, m, :, k]
        if blemish.how == "stuck":
            cells[:] = sheet.values_RMGK[max(inside[0] - 1, 0), m, :, k]
        elif blemish.how == "zero":
            cells[:] = 0.0
        elif blemish.how == "missing":
            cells[:] = np.nan
        elif blemish.how == "unit":
            cells *= blemish.factor
        elif blemish.how == "recount":
            cells -= cells[:1].copy()
        else:
            cells[:] = sheet.values_RMGK[np.maximum(np.arange(span.start, span.stop) - 17, 0), m, :, k] * rng.choice(
                [0.0, 0.2, 1.0], cells.shape
            )


def _first_rates_missing(sheet: Sheet, scene: Scene) -> None:
    """An exporter that has just come back has counted nothing yet: its first rates are missing."""
    rates = [k for k, name in enumerate(sheet.names) if name.endswith("_per_second") and _owner(name) != "gpu"]
    for blemish in scene.blemishes:
        if blemish.how == "silent" and 0 < blemish.end_s < scene.job.duration_s:
            after = np.flatnonzero(sheet.times_RM[:, blemish.machine] >= blemish.end_s)[:1]
            sheet.values_RMGK[np.ix_(after, np.array([blemish.machine]), np.arange(sheet.values_RMGK.shape[2]), np.array(rates, int))] = (
                np.nan
            )


def record(scene: Scene) -> Rows:
    """All rows of all exporters of this scene."""
    job, rng = scene.job, scene.job.random("rows")
    sheets = _sheets(scene)
    metrics = tuple(name for sheet in sheets for name in sheet.names)
    parts = []
    for sheet in sheets:
        lost_RM = rng.random(sheet.times_RM.shape) < scene.lost
        own = job.random(f"garbage of {sheet.exporter}")
        for blemish in scene.blemishes:
            _spoil(sheet, blemish, own)
        _first_rates_missing(sheet, scene)
        there = sheet.there_RMG & ~lost_RM[:, :, None] & np.isfinite(sheet.values_RMGK).any(axis=-1)
        scrape_N, machine_N, row_N = np.nonzero(there)
        wide = np.full((scrape_N.size, len(metrics)), np.nan)
        wide[:, [metrics.index(name) for name in sheet.names]] = sheet.values_RMGK[there]
        stamps = job.start_s + sheet.times_RM[scrape_N, machine_N] + scene.clock_off_M[machine_N]
        parts.append((stamps, machine_N, row_N if sheet.devices else np.full(row_N.size, -1), wide))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Rows(metrics, *columns)
