"""What every job does: its work breathes; checkpoints; short jitters of one metric; housekeeping on one host."""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.noise import remembering
from minder.simulate.cluster.scene import TRAIN, Phase, Scene
from minder.simulate.cluster.streams import draw

__all__ = ["add_breathing", "add_checkpoints", "add_housekeeping", "add_jitters"]


def add_breathing(scene: Scene) -> None:
    """The work of all machines together rises and falls by some percent within a minute: batches differ."""
    rng = scene.streams.of("breathing")
    size, memory_s = rng.uniform(0.0, 0.04), rng.uniform(15.0, 90.0)
    scene.activity_TM *= np.exp(size * remembering(rng, scene.ticks, np.array([memory_s]), scene.tick_s, (1,)))


def add_checkpoints(scene: Scene) -> None:
    """Every few minutes everybody writes for some seconds. A halted job writes none, unless a daemon of its own does it."""
    rng, rules = scene.streams.of("checkpoints"), scene.recipe.schedule
    every_s, lasts_s = draw(rng, rules.checkpoint_every_s), draw(rng, rules.checkpoint_s)
    daemon = rng.random() < 0.4
    at_s = rng.uniform(0.2, 1.0) * every_s
    while at_s < scene.duration_s - lasts_s:
        rows = scene.span(at_s, lasts_s * rng.uniform(0.9, 1.1))
        halted = bool((scene.wait_TM[rows].min(axis=1) > 0.85).any())
        free_M = (scene.mode_TM[rows] == TRAIN).all(axis=0) & (daemon or not halted)
        if free_M.mean() > 0.5:
            scene.enter("checkpoint", rows, np.nonzero(free_M)[0], float(rng.uniform(0.9, 1.0)))
            scene.phases.append(Phase("checkpoint", at_s, at_s + lasts_s))
        at_s += every_s * rng.uniform(0.97, 1.03)


def add_jitters(scene: Scene) -> None:
    """One metric of one machine is off for some seconds, now and then."""
    rng = scene.streams.of("jitters")
    rate = scene.recipe.schedule.jitters_per_machine_hour * scene.machines * scene.duration_s / 3600.0
    for _ in range(rng.poisson(rate)):
        rows = scene.span(rng.uniform(0.0, scene.duration_s), rng.uniform(3.0, 35.0))
        factor = rng.uniform(0.35, 0.8) if rng.random() < 0.5 else rng.uniform(1.25, 3.0)
        scene.gain_TMK[rows, rng.integers(scene.machines), rng.integers(len(scene.models))] *= factor


def add_housekeeping(scene: Scene) -> None:
    """Backups, log rotation, package updates: one host's CPU, sockets and page cache for minutes; the training feels nothing."""
    rng = scene.streams.of("housekeeping")
    for _ in range(rng.poisson(scene.recipe.schedule.housekeeping_per_hour * scene.duration_s / 3600.0)):
        rows, machine = scene.span(rng.uniform(0.0, scene.duration_s), rng.uniform(40.0, 240.0)), int(rng.integers(scene.machines))
        scene.gain(rows, machine, scene.of("cpu"), rng.uniform(1.2, 2.2))
        if rng.random() < 0.6:
            scene.gain(rows, machine, scene.of("tcp"), rng.uniform(1.5, 6.0))
        if rng.random() < 0.3:
            scene.gain(rows, machine, scene.of("memory"), rng.uniform(1.01, 1.1))
