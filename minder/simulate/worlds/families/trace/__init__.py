"""Trace: a job's life is a chain of phases, and each exporter reads it by tables, with a program and with faults of its own. No physics."""

from __future__ import annotations

import numpy as np

from minder.model.errors import ConfigError
from minder.simulate.worlds.families.trace.causes import CAUSES, FINAL, Chapter, befall, draw_chapter
from minder.simulate.worlds.families.trace.faults import FAULTS, GROUPS, Fault, break_down, draw_fault, shown_faults
from minder.simulate.worlds.families.trace.job import Job, draw_job, draw_life
from minder.simulate.worlds.families.trace.oddities import NUISANCES, add_oddities
from minder.simulate.worlds.families.trace.recording import record
from minder.simulate.worlds.families.trace.scene import Scene, begin
from minder.simulate.worlds.families.trace.tables import Phase
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "draw"]

NAME = "trace"


def _choose(job: Job) -> str:
    """The seed's own choice: NO_FAULT in a third of the seeds."""
    rng = job.random("choice")
    healthy, pick = rng.random() < 1 / 3, rng.random()
    kinds = shown_faults(job)
    return NO_FAULT if healthy else kinds[int(pick * len(kinds))]


def _break(scene: Scene, kind: str, chapter: Chapter, unfit: set[int]) -> Fault:
    job, rng = scene.job, scene.job.random("fault")
    latest = min(0.7 * job.duration_s, chapter.start_s - 150 if chapter.name in FINAL else np.inf)
    avoid = unfit | set(chapter.exchanged)
    saves_s = np.flatnonzero(np.diff((scene.charts[0].phase_T == Phase.SAVE).astype(int)) > 0) + 1.0
    fault = draw_fault(
        kind, job, rng, before_s=latest, avoid=avoid if len(avoid) < job.machines - 1 else set(chapter.exchanged), saves_s=saves_s
    )
    break_down(scene, fault, rng)
    return fault


def _truth(job: Job, names: tuple[str, ...], fault: Fault | None, cause: str | None, oddities: tuple[str, ...]) -> Truth:
    if fault is None:
        return Truth(cause=cause, nuisances=oddities)
    hit = tuple(names[m] for m in fault.machines)
    in_group = fault.name in GROUPS
    return Truth(
        culprits=() if in_group else hit,
        group=hit if in_group else (),
        fault=fault.name,
        onset_s=job.start_s + fault.onset_s,
        end_s=None if fault.end_s is None else job.start_s + fault.end_s,
        grey=fault.grey,
        cause=cause,
        nuisances=oddities,
    )


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world of this family; see `world.Family`.

    fault: one of FAULTS, NO_FAULT, or None for the seed's own choice. machines: at least 4. duration_s: at least 600 seconds.
    Raises ConfigError where these are something else.
    """
    if fault not in (None, NO_FAULT, *FAULTS):
        raise ConfigError(f"trace: unknown fault {fault!r}; one of {', '.join(FAULTS)}")
    if machines is not None and machines < 4:
        raise ConfigError(f"trace: {machines} machines are too few; ask for 4 or more")
    if duration_s is not None and duration_s < 600:
        raise ConfigError(f"trace: {duration_s} s are too short; ask for 600 or more")
    job = draw_job(seed, machines, duration_s)
    own = _choose(job)
    scene = begin(job, draw_life(job))
    chapter = draw_chapter(job, chance=2 / 3 if own == NO_FAULT else 0.3, final=own == NO_FAULT)
    befall(scene, chapter)
    oddities, unfit = add_oddities(scene, chapter)
    wanted = own if fault is None else fault
    broken = None if wanted == NO_FAULT else _break(scene, wanted, chapter, unfit)
    rows = record(scene)
    names = tuple(f"worker-{m:05d}" for m in range(job.machines))
    return World(
        family=NAME,
        seed=seed,
        machines=names,
        metrics=rows.metrics,
        interval_s=job.scrape_s,
        step_s=job.step_s,
        times_N=rows.times_N,
        machine_N=rows.machine_N,
        device_N=rows.device_N,
        values_NK=rows.values_NK,
        truth=_truth(job, names, broken, chapter.name, oddities),
        devices=tuple(f"gpu{g}" for g in range(job.gpus)),
        stages=dict(zip(names, job.stage_M.tolist(), strict=True)) if job.layout == "pipeline" else {},
        roles={name: "rollout" if job.rollout_M[m] else "trainer" for m, name in enumerate(names)} if job.layout == "roles" else {},
        racks={name: f"row-{job.rack_M[m]}" for m, name in enumerate(names)},
        switches={name: f"tor-{job.switch_M[m]}" for m, name in enumerate(names)},
        clock_off_s={name: float(scene.clock_off_M[m]) for m, name in enumerate(names) if scene.clock_off_M[m]},
    )
