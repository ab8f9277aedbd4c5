"""Phases that the whole job shares, in which machines legitimately differ."""

from __future__ import annotations

import numpy as np

from minder.simulate.cluster.scene import Phase, Scene

__all__ = ["add_evaluation", "add_restart", "add_start"]


def add_start(scene: Scene) -> None:
    """The recording begins while the job starts: data are loaded, kernels compiled; machines are ready one after the other."""
    rng = scene.streams.of("start")
    begin_s, spread_s = rng.uniform(5.0, 40.0), rng.uniform(0.0, 25.0)
    ready_M = begin_s + rng.uniform(0.0, spread_s, scene.machines)
    for machine, ready_s in enumerate(ready_M):
        scene.enter("load", scene.span(0.0, float(ready_s)), [machine])
    scene.phases.append(Phase("compile", 0.0, float(ready_M.max())))


def add_evaluation(scene: Scene) -> None:
    """Minutes of evaluation: all but one pipeline stage idle; without stages, a few machines evaluate and the others wait."""
    rng = scene.streams.of("evaluation")
    lasts_s = rng.uniform(50.0, 240.0)
    at_s = scene.quiet_spot(rng, lasts_s)
    if at_s is None:
        return
    rows = scene.span(at_s, lasts_s)
    stages = scene.shape.stages
    one_stage_M, some_M = scene.shape.stage_M == rng.integers(stages), rng.random(scene.machines) < rng.choice([0.25, 1.0])
    works_M = one_stage_M if stages > 1 else some_M
    scene.enter("evaluation", rows, np.nonzero(works_M)[0])
    idle = "dark" if rng.random() < 0.7 else "spin"
    scene.enter(idle, rows, np.nonzero(~works_M)[0], float(rng.uniform(0.9, 1.0)))
    scene.phases.append(Phase("evaluation", at_s, at_s + lasts_s))


def add_restart(scene: Scene) -> None:
    """The whole job ends and starts again; machines come back one by one, and the last ones are waited for."""
    rng = scene.streams.of("restart")
    down_s, back_M = rng.uniform(15.0, 60.0), rng.uniform(0.0, 90.0, scene.machines)
    at_s = scene.quiet_spot(rng, down_s + float(back_M.max()) + 20.0)
    if at_s is None:
        return
    ready_s = at_s + down_s + float(back_M.max()) + rng.uniform(5.0, 20.0)
    exporters_too = rng.random() < 0.3
    for machine in range(scene.machines):
        gone_s = down_s + float(back_M[machine])
        scene.enter("gone", scene.span(at_s, gone_s), [machine])
        scene.enter("load", scene.span(at_s + gone_s, ready_s - at_s - gone_s), [machine])
        if exporters_too:
            scene.silent_TM[scene.span(at_s, gone_s * rng.uniform(0.3, 0.9)), machine] = True
    scene.phases.append(Phase("restart", at_s, ready_s))
