"""Changes that last and harm no machine."""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.scene import Scene

__all__ = ["add_drift", "add_other_hardware", "add_page_cache", "add_sidecar", "add_warm_slot"]


def add_drift(scene: Scene) -> None:
    """Metrics creep over the recording, of the job together and of some machines by themselves."""
    rng = scene.streams.of("drift")
    shape = (scene.machines, len(scene.models))
    slope_MK = rng.normal(0.0, 0.05, shape) * (rng.random(shape) < 0.3) + rng.normal(0.0, 0.05, len(scene.models))
    slope_MK[:, scene.of("congestion", "tcp")] *= 3.0
    slope_MK[:, scene.of("disk", "gpu_memory", "clock", "duty")] *= 0.3
    scene.gain_TMK *= np.exp(np.linspace(0.0, 1.0, scene.ticks)[:, None, None] * slope_MK)


def _lasting(scene: Scene, concept: str, group: str, size: tuple[float, float], ramp_s: tuple[float, float]) -> np.random.Generator:
    """One machine's group rises once, over a ramp, and stays."""
    rng = scene.streams.of(concept)
    machine, at_s = int(rng.integers(scene.machines)), rng.uniform(0.1, 0.85) * scene.duration_s
    ramp_T = np.clip((scene.time_T - at_s) / rng.uniform(*ramp_s), 0.0, 1.0)
    scene.gain(slice(None), machine, scene.of(group), 1.0 + rng.uniform(*size) * ramp_T)
    return rng


def add_warm_slot(scene: Scene) -> None:
    """A fan or a valve: one machine runs warmer from now on, at full clock."""
    _lasting(scene, "warm_slot", "temperature", (0.06, 0.22), (40.0, 240.0))


def add_sidecar(scene: Scene) -> None:
    """A new daemon takes CPU on one machine, and stays."""
    _lasting(scene, "sidecar", "cpu", (0.25, 1.0), (1.0, 10.0))


def add_page_cache(scene: Scene) -> None:
    """The page cache of one machine grows and grows."""
    _lasting(scene, "page_cache", "memory", (0.1, 0.5), (300.0, 1500.0))


def add_other_hardware(scene: Scene) -> None:
    """Some machines are of another batch or firmware: other power, clock, temperature, links; from the start."""
    rng = scene.streams.of("other_hardware")
    chosen_M = rng.random(scene.machines) < rng.uniform(0.08, 0.5)
    for group, size in (("power", 0.15), ("clock", 0.1), ("temperature", 0.12), ("fabric", 0.12), ("cpu", 0.3), ("memory", 0.2)):
        if rng.random() < 0.7:
            for k in scene.of(group):
                scene.gain_TMK[:, chosen_M, k] *= 1.0 + rng.uniform(-size, size)
