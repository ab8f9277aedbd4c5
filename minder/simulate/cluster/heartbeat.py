"""Metrics of richer sites: the job's own heartbeat, and counters that count.

Legend: T ticks, M machines, C these metrics.
"""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.faults import FAULTS
from minder.simulate.cluster.iteration import Iteration
from minder.simulate.cluster.levels import MetricModel, State
from minder.simulate.cluster.scene import TRAIN, Scene

__all__ = ["COUNTERS", "count"]


def _counter(name: str, high: float, step: float = 1.0) -> MetricModel:
    return MetricModel(name, "counter", (0.0, 0.0), State(), 0.0, 1.0, 0.0, high, step)


COUNTERS = (
    _counter("steps_total", 1e12),
    _counter("step_seconds", 1e6, 1e-3),
    _counter("link_downs_total", 1e9),
    _counter("gpu_ecc_uncorrectable_total", 1e9),
    _counter("pcie_link_width", 16.0),
)


def count(scene: Scene, iteration: Iteration) -> np.ndarray:
    """values_TMC of COUNTERS."""
    rng = scene.streams.of("counters")
    values_TMC = np.zeros((scene.ticks, scene.machines, len(COUNTERS)))
    stands_T = (scene.wait_TM.min(axis=1) > 0.85) | ((scene.mode_TM == TRAIN).mean(axis=1) <= 0.5)
    pace_T = np.where(stands_T, 0.0, scene.pace_T)
    steps_T = np.floor(rng.integers(100, 50_000) + np.cumsum(pace_T * scene.tick_s / iteration.step_s))
    values_TMC[:, :, 0] = steps_T[:, None]
    moving_T = np.maximum.accumulate(np.where(pace_T > 0.0, np.arange(scene.ticks), 0))  # a gauge keeps the last step's time
    values_TMC[:, :, 1] = (iteration.step_s / np.maximum(scene.pace_T[moving_T], 0.05))[:, None]
    values_TMC[:, :, 2] = rng.poisson(1.0, scene.machines)
    for signal in scene.signals:
        if signal.kind == "link" and signal.data.get("state") == "down" and signal.machine is not None:
            values_TMC[scene.span(signal.time_s), scene.shape.machines.index(signal.machine), 2] += 1.0
    values_TMC[:, :, 3] = rng.poisson(0.05, scene.machines)
    values_TMC[:, :, 4] = 16.0
    _faulty(scene, values_TMC)
    return values_TMC


def _faulty(scene: Scene, values_TMC: np.ndarray) -> None:
    plan = scene.fault
    if plan is None:
        return
    rows = scene.span(plan.onset_s)
    if plan.kind == "ecc_error":
        values_TMC[rows, plan.culprit, 3] += 1.0
    if plan.kind == "pcie_downgrade":
        values_TMC[rows, plan.culprit, 4] = 8.0
    if FAULTS[plan.kind].effect == "silent":
        values_TMC[rows, plan.culprit] = values_TMC[rows.start, plan.culprit]
