"""Networks that recover by themselves."""

from __future__ import annotations

import numpy as np

from minder.model.evidence import Signal
from minder.simulate.cluster.scene import Scene

__all__ = ["add_congestion", "add_link_flap"]

_APART_S = 310.0


def add_congestion(scene: Scene) -> None:
    """Another job shares the fabric for minutes: all machines are slower, no two by quite the same."""
    rng = scene.streams.of("congestion")
    lasts_s = rng.uniform(40.0, 300.0)
    at_s = scene.quiet_spot(rng, lasts_s)
    if at_s is None:
        return
    rows = scene.span(at_s, lasts_s)
    slow = rng.uniform(0.6, 0.92)
    scene.pace_T[rows] *= slow
    scene.wait_TM[rows] = np.clip((1.0 - slow) * np.exp(rng.normal(0.0, 0.05, scene.machines)), 0.0, 0.9)
    for k in scene.of("congestion"):
        scene.gain_TMK[rows, :, k] *= rng.uniform(2.0, 8.0) * np.exp(rng.normal(0.0, 0.3, scene.machines))


def add_link_flap(scene: Scene) -> None:
    """A link goes and comes back within seconds, once or twice with more than five minutes between; the job stands still meanwhile."""
    rng = scene.streams.of("link_flap")
    machine = int(rng.integers(scene.machines))
    latest_s = (scene.fault.onset_s if scene.fault else scene.duration_s) - 40.0
    before_s = -_APART_S
    for _ in range(int(rng.integers(1, 3))):
        at_s, lasts_s = rng.uniform(30.0, max(latest_s, 31.0)), rng.uniform(2.0, 10.0)
        if abs(at_s - before_s) <= _APART_S:
            continue  # two so near each other are the beginning of a fault (minder/diagnose/verdicts/signals.py)
        before_s = at_s
        rows = scene.span(at_s, lasts_s)
        scene.pace_T[rows] = 0.0
        scene.wait_TM[rows] = 1.0
        port, name = f"mlx5_{rng.integers(8)}", scene.shape.machines[machine]
        scene.signals += [
            Signal(at_s + dt_s, "link", name, device=port, data={"state": state}) for dt_s, state in ((0.0, "down"), (lasts_s, "up"))
        ]
        scene.gain(rows, machine, scene.of("fabric"), rng.uniform(0.05, 0.4))
        scene.gain(rows, machine, scene.of("congestion"), rng.uniform(3.0, 30.0))
