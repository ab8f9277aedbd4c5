"""Three exporters and a job's log, each a program of its own: its clock, its period, its cache, its way from counters to rates.

Legend: R scrapes of a machine, M machines, G rows of a machine, K metrics, T seconds, C charts, W instants in a window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.worlds.families.trace.scene import Mark, Scene
from minder.simulate.worlds.families.trace.tables import METRICS, NOISE, Phase, levels, personalities

__all__ = ["Sheet", "fabric_monitor", "gpu_monitor", "job_log", "node_monitor", "read_scene"]

_WALK_S = 45.0  # between two knots of the slow wandering of a machine
_TOTALS = frozenset({"link_downs_total", "gpu_ecc_uncorrectable_total", "gpu_rows_remapped_total", "steps_total"})


@dataclass(slots=True)
class Sheet:
    """What one exporter gave. values_RMGK: NaN where it gave nothing; there_RMG: rows that exist; devices: one row for each GPU."""

    exporter: str
    names: tuple[str, ...]
    times_RM: np.ndarray
    values_RMGK: np.ndarray
    there_RMG: np.ndarray
    devices: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The scene as lookups. phase_CT, pace_CT, filler_CT: charts; done_T: steps so far; table_PK: levels; own_MK: personalities."""

    scene: Scene
    phase_CT: np.ndarray
    pace_CT: np.ndarray
    filler_CT: np.ndarray
    done_T: np.ndarray
    table_PK: np.ndarray
    own_MK: np.ndarray
    walk_XM: np.ndarray
    late_M: np.ndarray
    marks: dict[str, list[Mark]]


def _steps(scene: Scene) -> np.ndarray:
    """(T,) steps done: each step's length is heavy-tailed."""
    job, chart, rng = scene.job, scene.charts[0], scene.job.random("steps")
    trains_T = np.isin(chart.phase_T, (Phase.TRAIN, Phase.WARM))
    uneven_T = np.exp(0.05 * np.clip(rng.standard_t(3, job.seconds), -8, 8))
    return np.cumsum(trains_T * chart.pace_T * uneven_T / job.step_s)


def read_scene(scene: Scene) -> Reading:
    """Everything that the exporters look up."""
    job, rng = scene.job, scene.job.random("reading")
    table = levels(rng, job.tdp_w, job.nominal_hz)
    own = personalities(rng, job.machines, job.stage_M, scene.uneven)
    knots = int(job.duration_s / _WALK_S) + 3
    walk = np.cumsum(rng.standard_normal((knots, job.machines)) * 0.4, axis=0)
    walk -= np.linspace(0, 1, knots)[:, None] * walk[-1] * 0.7
    marks: dict[str, list[Mark]] = {}
    for mark in scene.marks:
        marks.setdefault(mark.metric, []).append(mark)
    return Reading(
        scene=scene,
        phase_CT=np.array([chart.phase_T for chart in scene.charts]),
        pace_CT=np.array([chart.pace_T for chart in scene.charts]),
        filler_CT=np.array([chart.filler_T for chart in scene.charts]),
        done_T=_steps(scene),
        table_PK=table,
        own_MK=own,
        walk_XM=np.clip(walk, -3, 3),
        late_M=np.minimum(rng.exponential(0.4, job.machines), 3.0),
        marks=marks,
    )


def _instants(reading: Reading, at_RM: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(R, M) phase, pace, filler and the share of a step that computes, at these seconds of the trace."""
    job, scene = reading.scene.job, reading.scene
    behind_RM = np.maximum(at_RM - reading.late_M, 0.0)
    tick_RM = np.minimum(behind_RM.astype(np.int32), job.seconds - 2)
    flat = scene.chart_M[None, :] * job.seconds + tick_RM
    done_RM = reading.done_T[tick_RM]
    done_RM = done_RM + (reading.done_T[tick_RM + 1] - done_RM) * (behind_RM - tick_RM) - 0.06 * job.stage_M
    computes_RM = (done_RM % 1.0 < job.split) * 1.0
    return reading.phase_CT.ravel()[flat], reading.pace_CT.ravel()[flat], reading.filler_CT.ravel()[flat], computes_RM


def _level(reading: Reading, k: int, instants: tuple[np.ndarray, ...], mixed: float) -> np.ndarray:
    """(R, M) the table's level. mixed: how far a step is blurred because many of them fit into the exporter's own averaging."""
    phase_RM, pace_RM, filler_RM, computes_RM = instants
    lookup_P = np.append(reading.table_PK[:, k], 0.0)
    share_RM = mixed * reading.scene.job.split + (1 - mixed) * computes_RM
    train_RM = lookup_P[Phase.COMPUTE] * share_RM + lookup_P[Phase.EXCHANGE] * (1 - share_RM)
    level_RM = np.where(phase_RM == Phase.TRAIN, train_RM, lookup_P[phase_RM])
    return np.asarray(level_RM * pace_RM + (1 - pace_RM) * lookup_P[filler_RM])


def _smooth_temperature(reading: Reading, k: int, at_RM: np.ndarray) -> np.ndarray:
    """(R, M) temperatures come from the same table, but a minute's mean of it."""
    job, kernel = reading.scene.job, np.exp(-np.arange(150) / 35.0)
    lookup_P = np.append(reading.table_PK[:, k], 0.0)
    lookup_P[Phase.TRAIN] = lookup_P[Phase.COMPUTE] * job.split + lookup_P[Phase.EXCHANGE] * (1 - job.split)
    by_chart = lookup_P[reading.phase_CT] * reading.pace_CT + (1 - reading.pace_CT) * lookup_P[reading.filler_CT]
    padded = np.concatenate([np.repeat(by_chart[:, :1], kernel.size - 1, axis=1), by_chart], axis=1)
    smooth_CT = np.array([np.convolve(row, kernel / kernel.sum(), "valid") for row in padded])
    tick_RM = np.clip(at_RM.astype(np.int32), 0, job.seconds - 1)
    return np.asarray(smooth_CT.ravel()[reading.scene.chart_M[None, :] * job.seconds + tick_RM])


def _marked(reading: Reading, metric: str, at_RM: np.ndarray, value_RMG: np.ndarray) -> None:
    """Put the scene's marks of this metric onto the values."""
    for mark in reading.marks.get(metric, ()):
        course_T = np.floor(np.cumsum(mark.course_T) * mark.value + 1e-9) if mark.how == "count" else mark.course_T
        if metric == "gpu_temperature_celsius":
            course_T = np.convolve(course_T, np.exp(-np.arange(120) / 30) / 30)[: course_T.size]
        tick = np.clip((at_RM[:, mark.machines] - reading.late_M[mark.machines]).astype(int), 0, course_T.size - 1)
        course = course_T[tick][:, :, None]
        rows = slice(None) if mark.device is None or value_RMG.shape[2] == 1 else slice(mark.device, mark.device + 1)
        part = value_RMG[:, mark.machines, rows]
        if mark.how == "times":
            part = part * (1 + course * (mark.value - 1))
        elif mark.how == "plus":
            part = part + course * mark.value
        elif mark.how == "count":
            part = part + course
        elif mark.how == "at_least":
            part = np.maximum(part, course * mark.value)
        else:
            part = np.where(course > 0, mark.value, part)
        value_RMG[:, mark.machines, rows] = part


def _scatter(reading: Reading, rng: np.random.Generator, metric: str, at_RM: np.ndarray, value_RMG: np.ndarray) -> np.ndarray:
    """Heavy-tailed noise and slow wandering, in proportion; (R, M, G)."""
    size = NOISE.get(metric, 0.0) * reading.scene.calm
    tail = rng.standard_normal(value_RMG.shape, np.float32)
    if not size:
        return value_RMG
    heavy = tail * (0.7 + 0.3 * np.abs(rng.standard_normal(value_RMG.shape, np.float32))) ** 2
    knot_RM = np.clip(at_RM / _WALK_S, 0, reading.walk_XM.shape[0] - 1.001)
    below = knot_RM.astype(int)
    which = (np.arange(at_RM.shape[1]) + 7 * METRICS.index(metric)) % at_RM.shape[1]  # each metric wanders for itself
    walk = reading.walk_XM[below, which] + (reading.walk_XM[below + 1, which] - reading.walk_XM[below, which]) * (knot_RM - below)
    return np.asarray(value_RMG * np.exp(size * (np.clip(heavy, -7, 7) + 0.6 * walk[:, :, None])))


def _own(reading: Reading, metric: str, value_RM: np.ndarray) -> np.ndarray:
    return np.asarray(value_RM * reading.own_MK[:, METRICS.index(metric)])


def _bounded(metric: str, value: np.ndarray) -> np.ndarray:
    return np.asarray(np.clip(value, 0.0, 1.0 if metric.endswith("_ratio") else None))


def gpu_monitor(reading: Reading, times_RM: np.ndarray, names: tuple[str, ...]) -> Sheet:
    """Gauges from a cache that is refreshed in its own rhythm; one row for each GPU, or their mean."""
    job, rng = reading.scene.job, reading.scene.job.random("gpu")
    cache_s = float(rng.choice([1.0, job.scrape_s, job.scrape_s, 10.0, 30.0]))
    phase_M = rng.uniform(0, cache_s, job.machines)
    turn_RM = np.floor((times_RM + phase_M) / cache_s).astype(int)
    fresh, back_RM = _fresh(turn_RM)
    at_RM = np.clip(fresh * cache_s - phase_M, 0.0, job.duration_s)
    rows = job.gpus or 1
    instants, mixed = _instants(reading, at_RM), float(np.clip(1.0 - job.step_s / 3.0, 0.0, 1.0))
    board_MG = 1 + 0.02 * rng.standard_normal((job.machines, rows)).clip(-2.5, 2.5) * (rows > 1)
    sheet = np.empty((*times_RM.shape, rows, len(names)))
    columns = np.arange(job.machines)[None, :]
    for number, name in enumerate(names):
        k = METRICS.index(name)
        hot = name == "gpu_temperature_celsius"
        plain = _smooth_temperature(reading, k, at_RM) if hot else _level(reading, k, instants, mixed)
        value = _own(reading, name, plain)[:, :, None] * np.where(NOISE[name] > 0.003, board_MG, 1.0)
        value = _scatter(reading, rng, name, at_RM, np.ascontiguousarray(value))
        _marked(reading, name, at_RM, value)
        value = _bounded(name, value)
        value = np.rint(value) if hot or name.endswith(("_total", "reasons", "width")) else np.round(value, 4)
        sheet[..., number] = (np.rint(value / 15e6) * 15e6 if name == "gpu_clock_hertz" else value)[back_RM, columns]
    gone = np.zeros((*at_RM.shape, rows))
    _marked(reading, "gone", at_RM, gone)
    there = gone[back_RM, columns] < 0.5 if job.gpus else np.ones((*times_RM.shape, 1), bool)
    return Sheet("gpu", names, times_RM, sheet, there, bool(job.gpus))


def _fresh(turn_RM: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cache's turns of each machine that were read at all, (X, M), and which of them each scrape read, (R, M)."""
    first_M = turn_RM.min(axis=0)
    longest = int((turn_RM.max(axis=0) - first_M).max()) + 1
    if longest > 2 * turn_RM.shape[0]:  # refreshed more often than scraped: each scrape is a turn of its own
        return turn_RM.astype(float), np.broadcast_to(np.arange(turn_RM.shape[0])[:, None], turn_RM.shape)
    return (first_M + np.arange(longest)[:, None]).astype(float), turn_RM - first_M


def _window_mean(reading: Reading, k: int, times_RM: np.ndarray, window_s: float) -> np.ndarray:
    """(R, M) mean level over the window that ends at each scrape, from a few instants of it."""
    instants = 4 if window_s > 2 else 2
    mixed = float(np.clip(1 - 2 * reading.scene.job.step_s / window_s, 0, 1))
    total = np.zeros(times_RM.shape)
    for w in range(instants):
        at_RM = np.maximum(times_RM - window_s * (w + 0.5) / instants, 0.0)
        total += _level(reading, k, _instants(reading, at_RM), mixed)
    return total / instants


def node_monitor(reading: Reading, times_RM: np.ndarray, names: tuple[str, ...]) -> Sheet:
    """Processor and network rates over a window that may be longer than a scrape; memory, disk and queues as they are."""
    job, rng = reading.scene.job, reading.scene.job.random("node")
    window_s = float(rng.choice([1.0, 1.0, 2.0, 4.0])) * job.scrape_s
    sheet = np.empty((*times_RM.shape, 1, len(names)))
    instants = _instants(reading, times_RM)
    day = 2 * np.pi * (job.start_s + times_RM) / 86400
    for number, name in enumerate(names):
        k = METRICS.index(name)
        rate = name.endswith("_per_second") or name == "cpu_usage_ratio"
        value = _window_mean(reading, k, times_RM, min(window_s, 60.0)) if rate else _level(reading, k, instants, 1.0)
        value = _own(reading, name, value)
        if name.startswith("tcp_"):
            value = value * (1 + 0.25 * np.sin(day))
        value = _scatter(reading, rng, name, times_RM, value[:, :, None])
        _marked(reading, name, times_RM - (window_s / 2 if rate else 0), value)
        sheet[..., number] = np.rint(_bounded(name, value)) if "queue" in name else _bounded(name, value)
    return Sheet("node", names, times_RM, sheet, np.ones((*times_RM.shape, 1), bool))


def fabric_monitor(reading: Reading, times_RM: np.ndarray, names: tuple[str, ...]) -> Sheet:
    """Port counters, polled one machine after the other; errors come in bursts, and every fabric has some."""
    job, rng = reading.scene.job, reading.scene.job.random("fabric")
    period_s = float(np.median(np.diff(times_RM, axis=0)))
    dirt_M = (rng.random(job.machines) < 0.08) * rng.pareto(1.5, job.machines) * 0.05
    bursts = rng.random(times_RM.shape) < 0.1
    sheet = np.empty((*times_RM.shape, 1, len(names)))
    for number, name in enumerate(names):
        value = _own(reading, name, _window_mean(reading, METRICS.index(name), times_RM, max(period_s, 1.0)))
        value = _scatter(reading, rng, name, times_RM, value[:, :, None])
        if name == "link_errors_per_second":
            value = value + (dirt_M * bursts * 10)[:, :, None]
        _marked(reading, name, times_RM - period_s / 2, value)
        value = _bounded(name, value)
        sheet[..., number] = np.rint(value) if name in _TOTALS else value
    return Sheet("fabric", names, times_RM, sheet, np.ones((*times_RM.shape, 1), bool))


def job_log(reading: Reading, times_RM: np.ndarray, names: tuple[str, ...]) -> Sheet:
    """Steps as the training prints them: by every machine, or by the first one alone."""
    job, rng = reading.scene.job, reading.scene.job.random("log")
    rate_T = np.diff(reading.done_T, append=reading.done_T[-1])
    blurred = max(int(job.step_s), 3)
    mean_T = np.convolve(rate_T, np.ones(blurred))[: rate_T.size] / np.minimum(np.arange(rate_T.size) + 1, blurred)
    last_T = np.maximum.accumulate(np.where(mean_T > 0.02 / job.step_s, np.arange(rate_T.size), 0))
    tick_RM = np.clip((times_RM - reading.late_M).astype(int), 0, job.seconds - 1)
    seconds_RM = np.minimum(1 / np.maximum(mean_T[last_T[tick_RM]], 0.02 / job.step_s), 1e4)
    noise_RM = np.exp(0.01 * rng.standard_normal(times_RM.shape))
    by_name = {"step_seconds": seconds_RM * noise_RM, "steps_total": np.floor(reading.done_T[tick_RM])}
    sheet = np.stack([by_name[name] for name in names], axis=-1)[:, :, None, :]
    there = np.ones((*times_RM.shape, 1), bool)
    if rng.random() < 0.3:
        there[:, 1:] = False
    return Sheet("job", names, times_RM, sheet, there)
