"""Noise with memory, and standing differences between machines and stages.

Legend: T ticks, M machines, K metrics.
"""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.scene import Scene

__all__ = ["measurement_noise", "offsets", "remembering"]

_SHARED = 0.25  # of the noise's variance is common to the job: the same collective, the same data


def remembering(rng: np.random.Generator, ticks: int, memory_K: np.ndarray, tick_s: float, columns: tuple[int, ...]) -> np.ndarray:
    """Gaussian noise of unit variance, shape (ticks, *columns); the last axis has its own memory in seconds."""
    keep_K = np.exp(-tick_s / np.maximum(memory_K, 1e-3))
    fresh_K = np.sqrt(1.0 - keep_K**2)
    noise = rng.standard_normal((ticks, *columns))
    for t in range(1, ticks):
        noise[t] *= fresh_K
        noise[t] += keep_K * noise[t - 1]
    return noise


def measurement_noise(scene: Scene) -> np.ndarray:
    """Factors around 1, shape (T, M, K)."""
    rng = scene.streams.of("noise")
    size_K = np.array([model.noise for model in scene.models]) * np.exp(rng.normal(0.0, 0.35, len(scene.models)))
    memory_K = np.array([model.memory_s for model in scene.models])
    own_TMK = remembering(rng, scene.ticks, memory_K, scene.tick_s, (scene.machines, len(scene.models)))
    shared_T1K = remembering(rng, scene.ticks, memory_K, scene.tick_s, (1, len(scene.models)))
    own_TMK *= np.sqrt(1.0 - _SHARED) * size_K
    own_TMK += np.sqrt(_SHARED) * size_K * shared_T1K
    np.exp(own_TMK, out=own_TMK)
    return own_TMK


def _base(bounds: tuple[float, float], rng: np.random.Generator) -> float:
    """Wide ranges are drawn from evenly over the logarithm."""
    if bounds[1] > 4.0 * bounds[0]:
        return float(np.exp(rng.uniform(*np.log(bounds))))
    return float(rng.uniform(*bounds))


def offsets(scene: Scene) -> np.ndarray:
    """Training averages per machine and metric, in the metric's unit, shape (M, K): a draw per job, per stage, per slot."""
    rng, rules, shape = scene.streams.of("offsets"), scene.recipe.job, scene.shape
    base_K = np.array([_base(rules.levels.get(model.name, model.base), rng) for model in scene.models])
    spread_K = rules.slot_spread * np.array([model.spread for model in scene.models])
    slot_MK = np.exp(rng.normal(0.0, 1.0, (scene.machines, len(scene.models))) * spread_K)
    work_S = rng.normal(0.0, rules.stage_spread, shape.stages)  # one stage works more: all its activity rises together
    stage_SK = np.exp(work_S[:, None] * rng.uniform(0.3, 1.0, len(scene.models)) + rng.normal(0.0, 0.02, (shape.stages, len(scene.models))))
    held = scene.of("memory", "disk", "clock", "temperature", "duty", "gpu_memory")
    stage_SK[:, held] = stage_SK[:, held] ** 0.15
    first_SK = np.ones_like(stage_SK)
    first_SK[0, scene.of("cpu", "tcp")] = rng.uniform(1.0, 1.15)  # the first stage reads the data
    return np.asarray(base_K * slot_MK * (stage_SK * first_SK)[shape.stage_M])
