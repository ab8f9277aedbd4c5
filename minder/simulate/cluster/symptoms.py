"""What the faulty machine itself shows: in some metric groups the fault, in the others what its peers show or what it showed before.

Legend: T ticks, M machines, K metrics.
"""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.fault_plan import FaultPlan
from minder.simulate.cluster.faults import FAULTS
from minder.simulate.cluster.levels import STATES, TRAINING_GROUPS, level_table
from minder.simulate.cluster.scene import Scene

__all__ = ["show_symptoms"]

_DARK = STATES.index("dark")


def show_symptoms(scene: Scene, factor_TMK: np.ndarray, training_TMK: np.ndarray) -> None:
    """Change the culprit's factors from the onset on.

    factor_TMK: shares of the training average as the job's state gives them; training_TMK: the same without the fault's effect.
    Weak faults lie between what the peers show and the full symptom, evenly on a logarithmic scale.
    """
    plan = scene.fault
    if plan is None:
        return
    rng = scene.streams.of("symptoms")
    visible = _visible(scene, plan, rng)
    keeps = FAULTS[plan.kind].effect == "stall" and rng.random() < 0.4
    goal_K = _goals(scene, plan, rng)
    for machine in plan.machines:
        for k, model in enumerate(scene.models):
            if model.group in visible:
                _move(scene, plan, factor_TMK[:, machine, k], float(goal_K[k]), model.group)
            elif keeps and model.group in TRAINING_GROUPS:
                rows = scene.span(plan.onset_s)
                factor_TMK[rows, machine, k] = training_TMK[rows, machine, k]


def _visible(scene: Scene, plan: FaultPlan, rng: np.random.Generator) -> set[str]:
    """Groups that show the fault; never none of those that this site exports, or it could not be found."""
    fault = FAULTS[plan.kind]
    chances = {group: rng.random() < chance for group, chance in fault.shows.items()}
    exported = {model.group for model in scene.models}
    visible = {group for group, shows in chances.items() if shows}
    if not visible & exported and fault.effect not in ("silent", "crash"):
        able = [group for group in fault.shows if group in exported]
        able = able or [group for group in (*TRAINING_GROUPS, "cpu", "congestion") if group in exported] or sorted(exported)
        visible.add(able[0])
    return visible


def _goals(scene: Scene, plan: FaultPlan, rng: np.random.Generator) -> np.ndarray:
    """The factor of each metric at full severity."""
    fault = FAULTS[plan.kind]
    dark_K = level_table(scene.models, np.array([0.7, 0.25, 0.05, 0.0]))[_DARK]
    goal_K: np.ndarray = np.clip(dark_K * rng.uniform(0.7, 2.5, len(scene.models)), 0.01, None)
    if fault.effect == "slow":
        goal_K[:] = rng.uniform(0.6, 0.9)
    for group, bounds in fault.moves.items():
        goal_K[scene.of(group)] = rng.uniform(*bounds)
    if fault.effect == "stall" and "cpu" not in fault.moves and rng.random() < 0.2:
        goal_K[scene.of("cpu")] = rng.uniform(1.6, 2.6)  # a driver or a checkpointing thread that spins
    if fault.effect == "stall" and "congestion" not in fault.moves:
        goal_K[scene.of("congestion")] = rng.uniform(4.0, 40.0)
    return goal_K


def _move(scene: Scene, plan: FaultPlan, factor_T: np.ndarray, goal: float, group: str) -> None:
    """Towards the goal, by the severity, over the ramp; temperature has its own inertia and moves by heat, not at once."""
    rows = scene.span(plan.onset_s)
    ramp_s = max(plan.ramp_s, scene.tick_s) * (3.0 if group == "temperature" else 1.0)
    if FAULTS[plan.kind].effect == "stall":
        ramp_s = scene.tick_s * (2.0 if group != "temperature" else 30.0)
    share_T = plan.severity * np.clip((scene.time_T[rows] - plan.onset_s) / ramp_s, 0.0, 1.0)
    if FAULTS[plan.kind].effect == "flapping" and group != "congestion":  # losses and pauses go on between the flaps
        share_T = share_T * (scene.wait_TM[rows, plan.culprit] > 0.5)
    current_T = np.maximum(factor_T[rows], 1e-3)
    if FAULTS[plan.kind].effect in ("slow", "crash", "silent"):
        factor_T[rows] = current_T * goal**share_T
    else:
        factor_T[rows] = current_T ** (1.0 - share_T) * goal**share_T
