"""All lives of one world, and the marks that faults, causes and innocent oddities leave on what exporters would read.

Legend: T seconds, M machines, C charts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from minder.simulate.worlds.families.trace.job import Chart, Job, spread
from minder.simulate.worlds.families.trace.tables import Phase

__all__ = ["Blemish", "Mark", "Scene", "begin", "between", "on_and_off", "since"]


@dataclass(frozen=True, slots=True)
class Mark:
    """A metric of some machines moves while course_T is up: times, plus, at_least or set to the value, or counted up by it a second."""

    metric: str
    machines: np.ndarray
    how: Literal["times", "plus", "at_least", "set", "count"]
    value: float
    course_T: np.ndarray
    device: int | None = None


@dataclass(frozen=True, slots=True)
class Blemish:
    """What one exporter of one machine gives from start_s to end_s is not what is. exporter: gpu, node, fabric, job or all."""

    exporter: str
    machine: int
    how: Literal["silent", "stuck", "zero", "missing", "garbage", "unit", "recount"]
    start_s: float
    end_s: float
    metric: str | None = None
    factor: float = 1.0


@dataclass(slots=True)
class Scene:
    """charts: 0 is the job's, 1 the rollout machines'; chart_M says which one a machine lives by."""

    job: Job
    charts: list[Chart]
    chart_M: np.ndarray
    clock_off_M: np.ndarray
    marks: list[Mark] = field(default_factory=list)
    blemishes: list[Blemish] = field(default_factory=list)
    lost: float = 0.003  # share of scrapes that are lost
    uneven: float = 0.0
    calm: float = 1.0  # factor on all noise

    def own_chart(self, machine: int) -> Chart:
        """This machine's chart, which from now on no other machine shares."""
        if self.chart_M[machine] < 2:
            self.charts.append(self.charts[int(self.chart_M[machine])].copy())
            self.chart_M[machine] = len(self.charts) - 1
        return self.charts[int(self.chart_M[machine])]


def between(start_s: float, end_s: float, seconds: int) -> np.ndarray:
    """(T,) 1 from start_s to end_s, else 0."""
    time_T = np.arange(seconds)
    return ((time_T >= start_s) & (time_T < end_s)) * 1.0


def since(start_s: float, rise_s: float, end_s: float, seconds: int) -> np.ndarray:
    """(T,) up within rise_s from start_s on, gone at end_s."""
    time_T = np.arange(seconds)
    return np.asarray(np.clip((time_T - start_s) / max(rise_s, 1.0), 0.0, 1.0) * (time_T < end_s))


def on_and_off(rng: np.random.Generator, span_s: tuple[float, float], on_s: float, off_s: float, seconds: int) -> np.ndarray:
    """(T,) up for about on_s, away for about off_s, in turn; it begins up."""
    course_T, at = np.zeros(seconds), span_s[0]
    while at < span_s[1]:
        until = min(at + max(spread(rng, on_s, 0.4), 2.0), span_s[1])
        course_T[int(at) : max(int(until), int(at) + 2)] = 1.0
        at = until + max(spread(rng, off_s, 0.5), 4.0)
    return course_T


def begin(job: Job, life: Chart) -> Scene:
    """Every machine lives the job's life; rollout machines and trainers take turns."""
    scene = Scene(job, [life, life.copy()], job.rollout_M.astype(int), np.zeros(job.machines))
    if job.rollout_M.any():
        rng = job.random("turns")
        generate_s, train_s = rng.uniform(20, 90), rng.uniform(20, 120)
        generates_T = on_and_off(rng, (0, job.seconds), generate_s, train_s, job.seconds) > 0
        trains_T = life.phase_T == Phase.TRAIN
        scene.charts[0].phase_T[trains_T & generates_T] = Phase.WAIT
        scene.charts[1].phase_T[trains_T] = np.where(generates_T, Phase.GENERATE, Phase.WAIT)[trains_T]
    return scene
