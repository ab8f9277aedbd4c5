"""Temperature follows power with inertia."""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.noise import remembering
from minder.simulate.cluster.scene import Scene
from minder.simulate.cluster.streams import draw

__all__ = ["heat"]

_ROOM = 0.5  # of the training temperature is there without any power: coolant, room, other parts
_COOLANT_MEMORY_S = 300.0  # the coolant's own ups and downs, which all machines share


def heat(scene: Scene, work_TM: np.ndarray) -> np.ndarray:
    """Factors of the training temperature, shape (T, M), for power relative to its training average.

    Time constant of a GPU with its cold plate or heat sink: 15 to 60 s. Some sites average their sensors so long that nothing of it shows.
    """
    rng = scene.streams.of("thermal")
    tau_s, coupled = draw(rng, (15.0, 60.0)), rng.random() < 0.75
    if not coupled:
        return np.ones_like(work_TM)
    keep = np.exp(-scene.tick_s / tau_s)
    warm_TM = np.empty_like(work_TM)
    level_M = np.ones(scene.machines)
    for t in range(scene.ticks):
        level_M = keep * level_M + (1.0 - keep) * work_TM[t]
        warm_TM[t] = level_M
    coolant_T1 = remembering(rng, scene.ticks, np.array([_COOLANT_MEMORY_S]), scene.tick_s, (1,))
    return np.asarray((_ROOM + (1.0 - _ROOM) * warm_TM) * np.exp(rng.uniform(0.0, 0.015) * coolant_T1))
