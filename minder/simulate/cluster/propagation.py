"""How a fault reaches the peers: in a collective everybody waits for the slowest, and for the dead for ever."""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.fault_plan import FaultPlan
from minder.simulate.cluster.faults import FAULTS
from minder.simulate.cluster.scene import Scene
from minder.simulate.cluster.streams import draw

__all__ = ["propagate"]


def propagate(scene: Scene) -> None:
    """Write the fault's effect on the job into the scene; what the culprit itself shows is `symptoms.py`."""
    plan = scene.fault
    if plan is None:
        return
    rng, effect = scene.streams.of("propagation"), FAULTS[plan.kind].effect
    if effect == "slow":
        _slow(scene, plan, rng)
    elif effect == "flapping":
        _flap(scene, plan, rng)
    else:
        _stall(scene, plan, rng)
    if effect == "crash":
        _crash(scene, plan)
    if effect == "silent":
        scene.silent_TM[scene.span(plan.onset_s + rng.uniform(0.0, 3.0)), list(plan.machines)] = True


def _stall(scene: Scene, plan: FaultPlan, rng: np.random.Generator) -> None:
    """Peers spin until the end. Some collectives retry, and a ripple of the iteration remains in what the peers show."""
    begin_s = plan.onset_s + plan.echo_s
    arrival_M = begin_s + rng.uniform(0.0, 3.0, scene.machines)
    ripples = rng.random() < 0.4
    wait = rng.uniform(0.9, 0.98) if ripples else 1.0
    for machine in range(scene.machines):
        scene.wait_TM[scene.span(arrival_M[machine]), machine] = wait
    if not ripples:
        scene.pace_T[scene.span(begin_s)] = 0.0


def _slow(scene: Scene, plan: FaultPlan, rng: np.random.Generator) -> None:
    """Every step takes longer; peers wait for the rest of it, the culprit does not."""
    stretch = 1.0 + plan.severity * draw(rng, FAULTS[plan.kind].stretch)
    rows = scene.span(plan.onset_s + plan.echo_s)
    ramp_T = np.clip((scene.time_T[rows] - plan.onset_s - plan.echo_s) / max(plan.ramp_s, scene.tick_s), 0.0, 1.0)
    pace_T = 1.0 / (1.0 + (stretch - 1.0) * ramp_T)
    scene.pace_T[rows] *= pace_T
    peers = [machine for machine in range(scene.machines) if machine not in plan.machines]
    share_M = rng.uniform(0.8, 1.0, len(peers))  # some hide a part of the wait behind their own work
    scene.wait_TM[rows, peers] = (1.0 - pace_T)[:, None] * share_M


def _flap(scene: Scene, plan: FaultPlan, rng: np.random.Generator) -> None:
    """A link that keeps going: everybody stalls for seconds, trains on, stalls again."""
    at_s = plan.onset_s
    while at_s < scene.duration_s:
        lasts_s = rng.uniform(4.0, 15.0) * (0.5 + plan.severity)
        rows = scene.span(at_s, lasts_s)
        scene.pace_T[rows] = 0.0
        scene.wait_TM[rows] = 1.0
        at_s += lasts_s + rng.uniform(8.0, 40.0)


def _crash(scene: Scene, plan: FaultPlan) -> None:
    """The processes end; of a weak case only some of the eight."""
    rows = scene.span(plan.onset_s + plan.ramp_s)
    scene.enter("gone", rows, list(plan.machines), 1.0 if plan.severity > 0.6 else max(plan.severity, 0.125))
