"""From the scene to what the sensors would read: true values at every tick, in the metrics' units.

Legend: T ticks, M machines, K metrics, S states.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from minder.simulate.cluster.faults import FAULTS
from minder.simulate.cluster.iteration import Iteration, draw_iteration, weights
from minder.simulate.cluster.levels import level_table
from minder.simulate.cluster.noise import measurement_noise, offsets
from minder.simulate.cluster.nuisances import add_nuisances
from minder.simulate.cluster.propagation import propagate
from minder.simulate.cluster.scene import Scene
from minder.simulate.cluster.schedule import add_breathing, add_checkpoints, add_housekeeping, add_jitters
from minder.simulate.cluster.signals import announce
from minder.simulate.cluster.symptoms import show_symptoms
from minder.simulate.cluster.thermal import heat

__all__ = ["act", "render"]

_ACTIVITY = {"duty": 0.15, "power": 0.6, "compute": 1.0, "fabric": 1.0, "pcie": 1.0}  # how far a group follows the work


def act(scene: Scene, without_fault: bool = False) -> Iteration:
    """Let everything happen; returns the job's iteration. without_fault: the fault only moves nuisances out of its way, and is dropped."""
    iteration = draw_iteration(scene, scene.streams.of("iteration"))
    add_breathing(scene)
    add_nuisances(scene)
    if without_fault:
        scene.fault = None
    scene.before = (scene.pace_T.copy(), scene.wait_TM.copy())
    propagate(scene)
    announce(scene)
    add_checkpoints(scene)
    add_jitters(scene)
    add_housekeeping(scene)
    return iteration


def render(scene: Scene, iteration: Iteration) -> np.ndarray:
    """values_TMK, within the metrics' bounds."""
    table_SK = level_table(scene.models, iteration.share_P, iteration.contrast)
    factor_TMK = _factors(weights(scene, iteration), table_SK)
    if scene.fault is not None:
        training_TMK = factor_TMK
        if FAULTS[scene.fault.kind].effect == "stall":
            undisturbed = replace(scene, pace_T=scene.before[0], wait_TM=scene.before[1])
            training_TMK = _factors(weights(undisturbed, iteration), table_SK)
        show_symptoms(scene, factor_TMK, training_TMK)
    for group, share in _ACTIVITY.items():
        for k in scene.of(group):
            factor_TMK[:, :, k] *= scene.activity_TM**share
    factor_TMK *= scene.gain_TMK
    for k in scene.of("power")[:1]:
        warmth_TM = heat(scene, factor_TMK[:, :, k])
        for other in scene.of("temperature"):
            factor_TMK[:, :, other] *= warmth_TM
    factor_TMK *= offsets(scene)
    factor_TMK *= measurement_noise(scene)
    return _stick(scene, np.minimum(factor_TMK, [model.high for model in scene.models], out=factor_TMK))


def _factors(weights_TMS: np.ndarray, table_SK: np.ndarray) -> np.ndarray:
    """Shares of the training average. Summed state by state: a library's matrix product may round differently on another processor."""
    factor_TMK = np.zeros((*weights_TMS.shape[:2], table_SK.shape[1]))
    for state, row_K in enumerate(table_SK):
        used_TM = weights_TMS[:, :, state]
        if used_TM.any():
            factor_TMK += used_TM[:, :, None] * row_K
    return factor_TMK


def _stick(scene: Scene, values_TMK: np.ndarray) -> np.ndarray:
    for machine, metric, first, last in scene.frozen:
        values_TMK[first:last, machine, metric] = values_TMK[first, machine, metric]
    return values_TMK
