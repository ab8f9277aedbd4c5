"""Work that is not spread evenly: experts that are in demand, sequences of different lengths."""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.noise import remembering
from minder.simulate.cluster.scene import Scene

__all__ = ["add_uneven_data", "add_wander"]


def add_wander(scene: Scene) -> None:
    """Activity moves between machines within minutes, in all training metrics at once; no machine keeps it."""
    rng = scene.streams.of("wander")
    size, memory_s = rng.uniform(0.03, 0.12), rng.uniform(25.0, 150.0)
    walk_TM = remembering(rng, scene.ticks, np.full(scene.machines, memory_s), scene.tick_s, (scene.machines,))
    scene.activity_TM *= np.exp(size * walk_TM)


def add_uneven_data(scene: Scene) -> None:
    """Some data-parallel groups have longer sequences for a minute or two; their whole pipeline works more, the others wait."""
    rng = scene.streams.of("uneven_data")
    replicas = scene.machines // scene.shape.stages
    replica_M = np.arange(scene.machines) % replicas
    at_s = rng.uniform(0.0, 120.0)
    while at_s < scene.duration_s:
        rows = scene.span(at_s, rng.uniform(40.0, 150.0))
        scene.activity_TM[rows] *= np.exp(rng.normal(0.0, rng.uniform(0.03, 0.09), replicas))[replica_M]
        at_s += rng.uniform(40.0, 200.0)
