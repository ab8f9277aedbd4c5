"""Chapters of the job's life that befall every machine at once, and are no machine's fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from minder.simulate.worlds.families.trace.job import Job, spread
from minder.simulate.worlds.families.trace.scene import Blemish, Mark, Scene, between, on_and_off
from minder.simulate.worlds.families.trace.tables import Phase

__all__ = ["CAUSES", "FINAL", "Chapter", "befall", "draw_chapter"]

CAUSES: Mapping[str, str] = MappingProxyType(
    {
        "storage_slow": "reads and checkpoints take longer for all",
        "network_congestion": "the fabric is full of others' traffic",
        "data_loading_slow": "preparing batches takes more of every processor",
        "restart": "the job leaves, starts, compiles, warms up",
        "restart_exchanged": "a restart in which a standby takes one machine's place",
        "load_shift": "another batch shape: all levels move",
        "evaluation": "a long evaluation",
        "user_bug": "an exception of the script, on every machine within seconds",
        "deadlock": "all wait for each other until the end",
        "job_ends": "the last step, and then quiet",
        "power_limit": "a lower power limit for all boards",
        "warm_room": "inlet air gets warmer everywhere",
        "spasms": "everything stops for some seconds, again and again",
        "fabric_outage": "no traffic for a minute or more, then it goes on",
    }
)
FINAL = frozenset({"user_bug", "deadlock", "job_ends"})
_CONGESTED = ("ecn_packets_per_second", "cnp_packets_per_second", "pfc_tx_packets_per_second", "rdma_xmit_wait_per_second")


@dataclass(frozen=True, slots=True)
class Chapter:
    """A job-wide cause and when. exchanged: the machine that leaves and the one that takes its place."""

    name: str | None = None
    start_s: float = 0.0
    end_s: float = 0.0
    exchanged: tuple[int, ...] = ()


def draw_chapter(job: Job, *, chance: float, final: bool) -> Chapter:
    """With this chance one of CAUSES. final: also those after which no training follows."""
    rng = job.random("chapter")
    luck, pick, when, how_long = rng.random(), rng.random(), rng.random(), spread(rng, 130, 0.6)
    if luck >= chance:
        return Chapter()
    names = [name for name in CAUSES if final or name not in FINAL]
    name = names[int(pick * len(names))]
    start = job.duration_s * (0.62 + 0.2 * when if name in FINAL else 0.2 + 0.55 * when)
    end = job.duration_s + 9 if name in FINAL or name == "warm_room" else min(start + max(how_long, 30), 0.97 * job.duration_s)
    return Chapter(name, start, end, (int(rng.integers(job.machines - 1)), job.machines - 1) if name == "restart_exchanged" else ())


def _everywhere(scene: Scene, metrics: tuple[str, ...], how: str, value: float, course_T: np.ndarray) -> None:
    every = np.arange(scene.job.machines)
    scene.marks += [Mark(metric, every, how, value, course_T) for metric in metrics]  # type: ignore[arg-type]


def _storage_slow(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    for chart in scene.charts:
        chart.slow(1 - course_T * rng.uniform(0.35, 0.85), Phase.STARVED)
    _everywhere(scene, ("tcp_round_trip_seconds", "tcp_receive_queue_bytes"), "times", rng.uniform(2, 8), course_T)
    _everywhere(scene, ("tcp_throughput_bytes_per_second",), "times", rng.uniform(0.2, 0.6), course_T)


def _network_congestion(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    for chart in scene.charts:
        chart.slow(1 - course_T * rng.uniform(0.2, 0.6), Phase.WAIT)
    _everywhere(scene, _CONGESTED, "times", rng.uniform(4, 40), course_T)
    _everywhere(scene, ("rdma_throughput_bytes_per_second",), "times", rng.uniform(0.5, 0.85), course_T)


def _data_loading_slow(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    for chart in scene.charts:
        chart.slow(1 - course_T * rng.uniform(0.3, 0.8), Phase.STARVED)
    _everywhere(scene, ("cpu_usage_ratio",), "times", rng.uniform(2, 4), course_T)


def _restart(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    inside = np.flatnonzero(course_T)
    start, lasts = float(inside[0]), float(inside.size)
    cuts = start + lasts * np.array([0.0, *np.sort(rng.uniform(0.1, 0.95, 3)), 1.0])
    for chart in scene.charts:
        for phase, begins, ends in zip((Phase.IDLE, Phase.START, Phase.COMPILE, Phase.WARM), cuts[:-1], cuts[1:], strict=True):
            chart.write(begins, ends, phase)


def _load_shift(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    for chart in scene.charts:
        chart.slow(1 - course_T * rng.uniform(0.0, 0.5), Phase.EXCHANGE)
    names = (
        "gpu_sm_activity_ratio",
        "gpu_tensor_activity_ratio",
        "gpu_power_draw_watts",
        "gpu_memory_bandwidth_ratio",
        "nvlink_bandwidth_bytes_per_second",
    )
    for name in (*names, "rdma_throughput_bytes_per_second", "gpu_memory_used_ratio"):
        _everywhere(scene, (name,), "times", float(np.exp(rng.uniform(-0.5, 0.25))), course_T)


def _user_bug(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    start = float(np.flatnonzero(course_T)[0])
    for chart in scene.charts:
        chart.write(start, scene.job.seconds, Phase.IDLE)
    for machine in rng.choice(scene.job.machines, size=min(scene.job.machines, 40), replace=False):  # whose watchdogs take longer
        scene.own_chart(int(machine)).write(start, start + min(rng.pareto(1.2) * 3, 60), Phase.WAIT)


def _one_phase(phase: Phase) -> Callable[[Scene, np.random.Generator, np.ndarray], None]:
    def write(scene: Scene, _: np.random.Generator, course_T: np.ndarray) -> None:
        inside = np.flatnonzero(course_T)
        for chart in scene.charts:
            chart.write(inside[0], inside[-1] + 1, phase)

    return write


def _power_limit(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    limit = rng.uniform(0.55, 0.8)
    _everywhere(scene, ("gpu_power_draw_watts",), "times", limit, course_T)
    _everywhere(scene, ("gpu_clock_hertz",), "times", limit**0.5, course_T)
    _everywhere(scene, ("gpu_throttle_reasons",), "at_least", 4.0, course_T)
    for chart in scene.charts:
        chart.slow(1 - course_T * (1 - limit**0.5), Phase.COMPUTE)


def _warm_room(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    slow_T = np.minimum(np.cumsum(course_T) / rng.uniform(200, 500), 1.0)
    _everywhere(scene, ("gpu_temperature_celsius",), "plus", rng.uniform(6, 18), slow_T)


def _spasms(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    inside = np.flatnonzero(course_T)
    stops_T = on_and_off(rng, (inside[0], inside[-1]), rng.uniform(4, 25), rng.uniform(20, 90), scene.job.seconds)
    for chart in scene.charts:
        chart.slow(1 - stops_T, Phase(int(rng.choice([Phase.WAIT, Phase.STARVED]))))


def _fabric_outage(scene: Scene, rng: np.random.Generator, course_T: np.ndarray) -> None:
    _one_phase(Phase.WAIT)(scene, rng, course_T)
    _everywhere(scene, ("rdma_throughput_bytes_per_second",), "times", 0.0, course_T)
    _everywhere(scene, ("link_errors_per_second",), "plus", rng.uniform(0.5, 30), course_T * (np.cumsum(course_T) < 15))
    if rng.random() < 0.5:
        _everywhere(scene, ("link_downs_total",), "count", 1.0, course_T * (np.cumsum(course_T) == 1))


_WRITE: Mapping[str, Callable[[Scene, np.random.Generator, np.ndarray], None]] = {
    "storage_slow": _storage_slow,
    "network_congestion": _network_congestion,
    "data_loading_slow": _data_loading_slow,
    "restart": _restart,
    "restart_exchanged": _restart,
    "load_shift": _load_shift,
    "evaluation": _one_phase(Phase.EVALUATE),
    "user_bug": _user_bug,
    "deadlock": _one_phase(Phase.WAIT),
    "job_ends": _one_phase(Phase.IDLE),
    "power_limit": _power_limit,
    "warm_room": _warm_room,
    "spasms": _spasms,
    "fabric_outage": _fabric_outage,
}


def befall(scene: Scene, chapter: Chapter) -> None:
    """Write the cause into the scene."""
    if chapter.name is None:
        return
    seconds = scene.job.seconds
    _WRITE[chapter.name](scene, scene.job.random("cause"), between(chapter.start_s, chapter.end_s, seconds))
    if chapter.exchanged:
        left, joined = chapter.exchanged
        swap = (chapter.start_s + chapter.end_s) / 2
        scene.blemishes += [Blemish("all", left, "silent", swap, seconds), Blemish("all", joined, "silent", -1, swap)]
