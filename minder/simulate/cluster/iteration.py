"""What a training iteration looks like at the monitor's resolution: which share of each tick a machine spends in which phase.

An iteration is a circle: compute, gradient exchange, bubble, work of the host. Progress around it is the integral of the pace, so a
slow job has longer iterations, and a halted one stands still. A pipeline stage runs a little behind the stage before it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minder.simulate.cluster.levels import STATES, TRAINING_STATES
from minder.simulate.cluster.scene import TRAIN, Scene
from minder.simulate.cluster.streams import draw

__all__ = ["Iteration", "draw_iteration", "weights"]

_SPIN = STATES.index("spin")


@dataclass(frozen=True, slots=True)
class Iteration:
    """share_P: compute, sync, bubble, host; they sum to 1. lag_M: how far each machine is behind, in iterations."""

    share_P: np.ndarray
    lag_M: np.ndarray
    step_s: float
    contrast: float

    def progress(self, scene: Scene) -> np.ndarray:
        """Iterations done at the beginning of each tick, and after the last one; the job trains while most machines do."""
        trains_T = (scene.mode_TM == TRAIN).mean(axis=1) > 0.5
        rate_T = np.where(trains_T, scene.pace_T, 0.0) * scene.tick_s / self.step_s
        return np.concatenate([[0.0], np.cumsum(rate_T)])


def draw_iteration(scene: Scene, rng: np.random.Generator) -> Iteration:
    stages, rules = scene.shape.stages, scene.recipe.job
    host, contrast = draw(rng, rules.host_share), draw(rng, rules.contrast)
    sync, bubble = rng.uniform(0.12, 0.4), rng.uniform(0.02, 0.1) * np.log2(2 * stages)
    share_P = np.array([*((1.0 - host) * np.array([1.0 - sync - bubble, sync, bubble])), host])
    lag_M = scene.shape.stage_M * rng.uniform(0.0, 0.4) / stages + np.abs(rng.normal(0.0, 0.01, scene.machines))
    return Iteration(share_P, lag_M, scene.shape.step_s, contrast)


def weights(scene: Scene, iteration: Iteration) -> np.ndarray:
    """weights_TMS: which share of each tick each machine is in each state; sums to 1 over the states."""
    progress = iteration.progress(scene)
    start_TM = progress[:-1, None] - iteration.lag_M + 2.0
    length_T = np.diff(progress)
    weights_TMS = np.zeros((*scene.mode_TM.shape, len(STATES)))
    moves_T = length_T > 1e-9
    edge = 0.0
    for phase, share in enumerate(iteration.share_P):
        inside_TM = _passed(start_TM + length_T[:, None], edge, share) - _passed(start_TM, edge, share)
        frozen_TM = ((start_TM % 1.0) >= edge) & ((start_TM % 1.0) < edge + share)
        with np.errstate(divide="ignore", invalid="ignore"):
            weights_TMS[:, :, phase] = np.where(moves_T[:, None], inside_TM / length_T[:, None], frozen_TM)
        edge += share
    weights_TMS[:, :, :TRAINING_STATES] *= (1.0 - scene.wait_TM)[:, :, None]
    weights_TMS[:, :, _SPIN] = scene.wait_TM
    _overlay(scene, weights_TMS)
    return weights_TMS


def _passed(position_TM: np.ndarray, edge: float, share: float) -> np.ndarray:
    """How much of the phase [edge, edge + share) of the circle has been passed at a position."""
    whole_TM = np.floor(position_TM)
    return np.asarray(whole_TM * share + np.clip(position_TM - whole_TM - edge, 0.0, share))


def _overlay(scene: Scene, weights_TMS: np.ndarray) -> None:
    """Machines that are not in their iteration."""
    rows, machines = np.nonzero(scene.mode_TM != TRAIN)
    depth_N = scene.depth_TM[rows, machines]
    weights_TMS[rows, machines] *= (1.0 - depth_N)[:, None]
    weights_TMS[rows, machines, scene.mode_TM[rows, machines]] += depth_N
