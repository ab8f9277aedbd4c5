"""Innocent oddities: of exporters, of clocks, of rooms, of machines that do a little more than the job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.trace.causes import Chapter
from minder.simulate.worlds.families.trace.job import spread
from minder.simulate.worlds.families.trace.scene import Blemish, Mark, Scene, between, on_and_off, since
from minder.simulate.worlds.families.trace.tables import METRICS, Phase

__all__ = ["NUISANCES", "add_oddities"]

NUISANCES: Mapping[str, str] = MappingProxyType(
    {
        "rank0_writes_on": "the first machine saves longer than the others, which spin",
        "agent_lost": "all exporters of one machine are lost",
        "agent_restarted": "an agent restarts: a gap, and counters begin again",
        "second_tenant": "others' work on some of the machines",
        "hot_aisle": "one row of racks is warmer than the rest",
        "unlike_roles": "rollout machines and trainers in turns",
        "broken_metrics": "one exporter of one machine shows nonsense",
        "unit_change": "an agent's new version exports another unit",
        "exporter_freezes": "one exporter repeats its last values",
        "clock_lag": "clocks that are up to two minutes off",
        "scrape_gaps": "scrapes fail often",
        "zeros_for_missing": "0 where there is no value",
        "monitoring_out": "the monitoring is down for all",
        "housekeeping": "backups, log rotation, package updates",
        "uneven_machines": "machines of unlike make",
        "noisy_site": "values scatter far more than elsewhere",
        "stragglers_come_and_go": "now this, now that machine is slow for a moment",
    }
)
_OTHER_UNIT = {
    "gpu_clock_hertz": 1e-6,
    "gpu_power_draw_watts": 1e-3,
    "nvlink_bandwidth_bytes_per_second": 1e-9,
    "pcie_bandwidth_bytes_per_second": 1e-6,
    "rdma_throughput_bytes_per_second": 0.25,  # words of four bytes, as InfiniBand counts them
    "tcp_throughput_bytes_per_second": 8.0,
    "tcp_round_trip_seconds": 1e3,
    "gpu_memory_used_ratio": 0.01,
}
Writer = Callable[[Scene, np.random.Generator, float, float], "set[int]"]


def _one(scene: Scene, rng: np.random.Generator) -> int:
    return int(rng.integers(scene.job.machines))


def _rank0_writes_on(scene: Scene, rng: np.random.Generator, _: float, __: float) -> set[int]:
    own, others = scene.own_chart(0), scene.charts[:2]
    saves_T = own.phase_T == Phase.SAVE
    ends = np.flatnonzero(np.diff(saves_T.astype(int)) < 0) + 1
    for end in ends.tolist():
        longer = min(spread(rng, 20, 0.6), 120)
        own.write(end, end + longer, Phase.SAVE)
        for chart in others:
            chart.write(end, end + longer, Phase.WAIT)
    return set()


def _agent_lost(scene: Scene, rng: np.random.Generator, start_s: float, end_s: float) -> set[int]:
    machine = _one(scene, rng)
    scene.blemishes.append(Blemish("all", machine, "silent", start_s, end_s if rng.random() < 0.5 else scene.job.seconds))
    return {machine}


def _agent_restarted(scene: Scene, rng: np.random.Generator, start_s: float, _: float) -> set[int]:
    machine, gap = _one(scene, rng), spread(rng, 25, 0.5)
    scene.blemishes += [Blemish("all", machine, how, start_s, until) for how, until in (("silent", start_s + gap), ("recount", 1e9))]  # type: ignore[arg-type]
    return set()


def _second_tenant(scene: Scene, rng: np.random.Generator, start_s: float, end_s: float) -> set[int]:
    some = rng.choice(scene.job.machines, size=max(1, min(scene.job.machines // 4, int(rng.integers(1, 6)))), replace=False)
    course_T = since(start_s, 5, end_s, scene.job.seconds)
    for metric, how, value in (
        ("cpu_usage_ratio", "plus", rng.uniform(0.1, 0.35)),
        ("memory_usage_ratio", "plus", rng.uniform(0.03, 0.2)),
        ("tcp_throughput_bytes_per_second", "times", rng.uniform(1.5, 5)),
    ):
        scene.marks.append(Mark(metric, some, how, value, course_T))  # type: ignore[arg-type]
    return set()


def _hot_aisle(scene: Scene, rng: np.random.Generator, start_s: float, _: float) -> set[int]:
    rack_M = scene.job.rack_M
    warm = np.flatnonzero(rack_M // 2 == rack_M[_one(scene, rng)] // 2)
    course_T = np.ones(scene.job.seconds) if rng.random() < 0.6 else since(start_s, 400, 1e9, scene.job.seconds)
    scene.marks.append(Mark("gpu_temperature_celsius", warm, "plus", rng.uniform(5, 13), course_T))
    return set()


def _broken_metrics(scene: Scene, rng: np.random.Generator, start_s: float, end_s: float) -> set[int]:
    machine, how = _one(scene, rng), rng.choice(["zero", "missing", "garbage"])
    until = end_s if rng.random() < 0.6 else 1e9
    scene.blemishes.append(Blemish(str(rng.choice(["gpu", "node", "fabric"])), machine, how, start_s, until))
    return {machine}


def _unit_change(scene: Scene, rng: np.random.Generator, start_s: float, _: float) -> set[int]:
    metric = str(rng.choice(sorted(set(_OTHER_UNIT) & scene.job.shown)))
    share = float(rng.choice([0.0, 0.25, 1.0]))
    machines = {_one(scene, rng), *np.flatnonzero(rng.random(scene.job.machines) < share).tolist()}
    rollout_s = rng.exponential(30, scene.job.machines)
    scene.blemishes += [Blemish("all", m, "unit", start_s + rollout_s[m], 1e9, metric, _OTHER_UNIT[metric]) for m in sorted(machines)]
    return set()


def _exporter_freezes(scene: Scene, rng: np.random.Generator, start_s: float, end_s: float) -> set[int]:
    machine = _one(scene, rng)
    scene.blemishes.append(Blemish(str(rng.choice(["gpu", "node", "fabric", "all"])), machine, "stuck", start_s, end_s))
    return {machine}


def _clock_lag(scene: Scene, rng: np.random.Generator, _: float, __: float) -> set[int]:
    n = scene.job.machines
    wrong = {_one(scene, rng), *np.flatnonzero(rng.random(n) < (0.15 if rng.random() < 0.3 else 0.0)).tolist()}
    for machine in sorted(wrong):
        scene.clock_off_M[machine] = rng.choice([-1, 1]) * min(spread(rng, 35, 0.9), 120.0)
    return set()


def _scrape_gaps(scene: Scene, rng: np.random.Generator, _: float, __: float) -> set[int]:
    scene.lost = float(rng.uniform(0.04, 0.25))
    return set()


def _zeros_for_missing(scene: Scene, rng: np.random.Generator, _: float, __: float) -> set[int]:
    metric = str(rng.choice([name for name in METRICS if name in scene.job.shown]))
    machines = range(scene.job.machines) if rng.random() < 0.3 else [_one(scene, rng)]
    scene.blemishes += [Blemish("all", m, "zero", -1, 1e9, metric) for m in machines]
    return set()


def _monitoring_out(scene: Scene, rng: np.random.Generator, start_s: float, _: float) -> set[int]:
    until = start_s + min(spread(rng, 60, 0.6), 240)
    scene.blemishes += [Blemish("all", m, "silent", start_s, until) for m in range(scene.job.machines)]
    return set()


def _housekeeping(scene: Scene, rng: np.random.Generator, _: float, __: float) -> set[int]:
    job = scene.job
    for machine in rng.choice(job.machines, size=min(job.machines, int(rng.integers(2, 12))), replace=False):
        course_T = on_and_off(rng, (rng.uniform(0, job.duration_s), job.duration_s), rng.uniform(5, 60), 400, job.seconds)
        scene.marks.append(Mark("cpu_usage_ratio", np.array([machine]), "plus", rng.uniform(0.05, 0.35), course_T))
        scene.marks.append(Mark("tcp_throughput_bytes_per_second", np.array([machine]), "times", rng.uniform(1, 4), course_T))
    return set()


def _uneven_machines(scene: Scene, rng: np.random.Generator, _: float, __: float) -> set[int]:
    scene.uneven = float(rng.uniform(0.8, 2.0))
    return set()


def _noisy_site(scene: Scene, rng: np.random.Generator, _: float, __: float) -> set[int]:
    scene.calm = float(rng.uniform(1.8, 3.5))
    return set()


def _stragglers(scene: Scene, rng: np.random.Generator, _: float, __: float) -> set[int]:
    job = scene.job
    for machine in rng.choice(job.machines, size=min(job.machines, int(rng.integers(3, 15))), replace=False):
        at = rng.uniform(0, job.duration_s)
        course_T = between(at, at + min(spread(rng, 8, 0.5), 30), job.seconds)
        scene.marks.append(Mark("gpu_sm_activity_ratio", np.array([machine]), "times", rng.uniform(0.5, 0.9), course_T))
        scene.marks.append(Mark("gpu_power_draw_watts", np.array([machine]), "times", rng.uniform(0.7, 0.95), course_T))
    return set()


_WRITE: Mapping[str, Writer] = {
    "rank0_writes_on": _rank0_writes_on,
    "agent_lost": _agent_lost,
    "agent_restarted": _agent_restarted,
    "second_tenant": _second_tenant,
    "hot_aisle": _hot_aisle,
    "broken_metrics": _broken_metrics,
    "unit_change": _unit_change,
    "exporter_freezes": _exporter_freezes,
    "clock_lag": _clock_lag,
    "scrape_gaps": _scrape_gaps,
    "zeros_for_missing": _zeros_for_missing,
    "monitoring_out": _monitoring_out,
    "housekeeping": _housekeeping,
    "uneven_machines": _uneven_machines,
    "noisy_site": _noisy_site,
    "stragglers_come_and_go": _stragglers,
}


def add_oddities(scene: Scene, chapter: Chapter) -> tuple[tuple[str, ...], set[int]]:
    """Add up to four of NUISANCES to the scene: which ones, and the machines whose telemetry shows no fault because of them."""
    job, rng = scene.job, scene.job.random("oddities")
    tickets = rng.random(len(_WRITE))
    count = int(rng.choice([0, 1, 2, 3, 4], p=[0.2, 0.25, 0.3, 0.15, 0.1]))
    chosen = [name for _, name in sorted(zip(tickets, _WRITE, strict=True))[:count]]
    unfit: set[int] = set()
    for name in chosen:
        own = job.random(name)
        inside = chapter.name is not None and own.random() < 0.35  # in an evaluation, in a restart
        start = own.uniform(chapter.start_s, chapter.end_s) if inside else own.uniform(0.08, 0.9) * job.duration_s
        unfit |= _WRITE[name](scene, own, float(start), float(start + spread(own, 200, 0.7)))
    return (*chosen, "unlike_roles") if job.rollout_M.any() else tuple(chosen), unfit
