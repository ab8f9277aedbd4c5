"""A family of worlds: machines as servers in a closed queueing model of events.

Each step is a chain of load, compute, wait, exchange and write on every machine; collectives are barriers. What an exporter shows is
an integral of these intervals over its window, so that waiting, aliasing and staleness follow from the model and are not painted on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from minder.simulate.worlds.families.queue.events import Timeline, run
from minder.simulate.worlds.families.queue.exporter import Rows, scrape
from minder.simulate.worlds.families.queue.faults import Scene, bring_fault
from minder.simulate.worlds.families.queue.gauges import Gauges
from minder.simulate.worlds.families.queue.kinds import CAN_BE_GREY, CAUSES, FAULTS, NUISANCES, SHOWN_BY
from minder.simulate.worlds.families.queue.layout import Layout, draw_layout, stream
from minder.simulate.worlds.families.queue.moves import bring_cause, bring_nuisance
from minder.simulate.worlds.families.queue.story import Mark, Story
from minder.simulate.worlds.world import NO_FAULT, Truth, World

__all__ = ["CAUSES", "FAULTS", "NAME", "NUISANCES", "Plan", "build", "draw", "plan"]

NAME = "queue"
_ENDS_THE_JOB = ("deadlock", "job_ends", "user_bug")
_FIRST_ONSET_S = 240.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a seed brings beside its layout. exchanged: the machine that a restart replaces; on: the machine of each nuisance."""

    layout: Layout
    fault: str | None
    cause: str | None
    cause_at_s: float
    exchanged: int | None
    nuisances: tuple[str, ...]
    on: tuple[int, ...]


def _own_fault(layout: Layout, rng: np.random.Generator) -> str:
    count = len(layout.machines)
    shown = [f for f in FAULTS if set(SHOWN_BY.get(f, layout.metrics)) & set(layout.metrics)]
    return str(rng.choice([f for f in shown if count >= 8 or not f.startswith(("group", "two"))]))


def _draw_cause(layout: Layout, faulty: bool) -> tuple[str | None, float]:
    """Two thirds of the worlds without a fault have one, a fifth of the others; what ends the job comes late."""
    rng = stream(layout.seed, "cause")
    usual = [name for name in CAUSES if not faulty or name not in _ENDS_THE_JOB]
    name, happens, early, late = str(rng.choice(usual)), rng.random(), rng.uniform(0.15, 0.6), rng.uniform(0.62, 0.85)
    if happens > (0.2 if faulty else 2 / 3):
        return None, 0.0
    return name, layout.duration_s * float(late if name in _ENDS_THE_JOB else early)


def plan(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> Plan:
    """What `draw` would build, decided but not computed. Raises ValueError for a fault that is none of FAULTS."""
    if fault not in (None, NO_FAULT, *FAULTS):
        raise ValueError(f"fault: {fault!r} is none of {', '.join(FAULTS)}")
    layout = draw_layout(seed, machines, duration_s)
    rng = stream(seed, "choice")
    faulty, own = bool(rng.random() < 2 / 3), _own_fault(layout, rng)
    cause, cause_at_s = _draw_cause(layout, faulty)
    count = len(layout.machines)
    exchanged = int(rng.integers(count)) if rng.random() < 0.6 and cause == "restart" else None
    rng = stream(seed, "nuisances")
    usual = [name for name in NUISANCES if name != "unlike_roles"]
    names = tuple(map(str, rng.permutation(usual)[: rng.choice([0, 1, 1, 2, 2, 3])]))
    on = tuple(0 if name == "rank0_writes" else int(rng.integers(count)) for name in names)
    if layout.rollout_M.any():
        names, on = (*names, "unlike_roles"), (*on, -1)
    chosen = fault or (own if faulty else NO_FAULT)
    return Plan(layout, None if chosen == NO_FAULT else chosen, cause, cause_at_s, exchanged, names, on)


def _one_hot(count: int, chosen: Sequence[int] | np.ndarray) -> np.ndarray:
    return np.isin(np.arange(count), chosen)


def _group(layout: Layout, rng: np.random.Generator) -> np.ndarray:
    """The machines of one rack, switch or stage, at most half of the job; two neighbours where there is none."""
    ways = [layout.rack_M, layout.switch_M] + ([layout.stage_M] if layout.pipeline > 1 else [])
    way_M = ways[int(rng.integers(len(ways)))]
    group_M = way_M == way_M[int(rng.integers(len(way_M)))]
    if not 2 <= group_M.sum() <= len(way_M) // 2:
        first = int(rng.integers(len(way_M) - 1))
        group_M = _one_hot(len(way_M), [first, first + 1])
    return np.asarray(group_M)


def _fault_scene(made: Plan, rng: np.random.Generator) -> tuple[Scene, bool]:
    """Where the fault stands, and whether it is a grey one."""
    layout, name = made.layout, str(made.fault)
    count, duration = len(layout.machines), layout.duration_s
    free = np.setdiff1d(np.arange(count), [*made.on, -1 if made.exchanged is None else made.exchanged])
    free = free if len(free) >= 2 else np.arange(count)
    who_M = _group(layout, rng) if name.startswith("group") else _one_hot(count, rng.permutation(free)[: 2 if name == "two_slow" else 1])
    start = float(rng.uniform(min(_FIRST_ONSET_S, 0.3 * duration), max(0.55 * duration, _FIRST_ONSET_S + 1)))
    start = {"early_stall": float(rng.uniform(20.0, 150.0)), "slow_from_start": -1e6}.get(name, min(start, 0.6 * duration))
    grey = bool(rng.random() < 0.55) and name in CAN_BE_GREY
    size = float(rng.uniform(0.0, 0.35) if grey else rng.uniform(0.5, 1.0))
    heals = name in CAN_BE_GREY and rng.random() < 0.25
    end = min(duration, max(0.0, start) + float(rng.uniform(300.0, 700.0))) if heals else duration
    card_R = np.repeat(who_M, layout.gpus)
    if rng.random() < 0.7:
        card_R &= np.tile(_one_hot(layout.gpus, [int(rng.integers(layout.gpus))]), count)
    return Scene(layout, rng, who_M, card_R, start, end, size), grey


def _healthy_story(made: Plan) -> Story:
    layout, story = made.layout, Story()
    count, duration = len(layout.machines), layout.duration_s
    if made.cause is not None:
        rng = stream(layout.seed, "cause's size")
        all_M = np.ones(count, dtype=bool)
        lasts = float(rng.uniform(90.0, 900.0))
        where = Scene(layout, rng, all_M, np.repeat(all_M, layout.gpus), made.cause_at_s, made.cause_at_s + lasts, float(rng.random()))
        bring_cause(made.cause, where, story)
    for name, machine in zip(made.nuisances, made.on, strict=True):
        rng = stream(layout.seed, "nuisance " + name)
        start = float(rng.uniform(0.1, 0.85)) * duration
        who_M = _one_hot(count, [machine])
        if name == "hot_aisle":
            who_M = np.arange(count) // max(2, count // 6) == machine // max(2, count // 6)
        if name == "unit_change":
            who_M |= rng.random(count) < float(rng.choice([0.0, 0.2, 1.0]))
        bring_nuisance(name, Scene(layout, rng, who_M, np.repeat(who_M, layout.gpus), start, start + float(rng.uniform(60, 900))), story)
    return story


def _fill_disk(made: Plan, timeline: Timeline, scene: Scene, story: Story) -> Scene:
    """The disk is full when the write that never ends begins: only then is there anything to see."""
    start = timeline.hung_s if timeline.hung_s is not None else scene.start
    story.add(Mark(start, start + 20.0, scene.who_R, ("disk_usage_ratio",), "to", 1.0))
    story.add(Mark(start + 20.0, np.inf, scene.who_R, ("disk_usage_ratio",), "set", 1.0))
    return replace(scene, start=start)


def build(made: Plan) -> World:
    """The world of this plan."""
    story, scene, grey = _healthy_story(made), None, False
    if made.fault is not None:
        scene, grey = _fault_scene(made, stream(made.layout.seed, "fault " + made.fault))
        bring_fault(made.fault, scene, story)
    timeline = run(made.layout, story)
    if any(np.isinf(hold.length) and hold.at < made.cause_at_s for hold in story.holds):
        made = replace(made, exchanged=None)  # the job stands before its restart: no machine is replaced
    if scene is not None and made.fault == "full_disk":
        scene = _fill_disk(made, timeline, scene, story)
    rows = scrape(made.layout, Gauges(made.layout, timeline), story.marks)
    return _world(made, rows, _truth(made, scene, grey))


def _truth(made: Plan, scene: Scene | None, grey: bool) -> Truth:
    if scene is None:
        return Truth(cause=made.cause, nuisances=made.nuisances)
    names = tuple(made.layout.machines[k] for k in np.flatnonzero(scene.who_M))
    grouped = str(made.fault).startswith("group")
    return Truth(
        culprits=() if grouped else names,
        group=names if grouped else (),
        fault=made.fault,
        onset_s=made.layout.start_s + max(0.0, scene.start),
        end_s=made.layout.start_s + min(scene.end, made.layout.duration_s),
        grey=grey,
        cause=made.cause,
        nuisances=made.nuisances,
    )


def _clocks_off(made: Plan) -> dict[str, float]:
    if "clock_off" not in made.nuisances:
        return {}
    off_s = stream(made.layout.seed, "clock").uniform(15.0, 120.0) * stream(made.layout.seed, "clock's sign").choice([-1.0, -1.0, 1.0])
    return {made.layout.machines[made.on[made.nuisances.index("clock_off")]]: float(off_s)}


def _topology(layout: Layout, kind: str, of_M: np.ndarray) -> dict[str, str]:
    known_M = stream(layout.seed, kind).random(len(of_M)) > 0.03
    return {m: f"{kind}-{k}" for m, k, known in zip(layout.machines, of_M, known_M, strict=True) if known and layout.knows_topology}


def _world(made: Plan, rows: Rows, truth: Truth) -> World:
    layout = made.layout
    machines, off_s = layout.machines, _clocks_off(made)
    machine_N = rows.server_N // layout.gpus
    off_M = np.array([off_s.get(machine, 0.0) for machine in machines])
    times_N = layout.start_s + rows.times_N + off_M[machine_N]
    if made.exchanged is not None:
        machines = (*machines, "spare-0001")
        machine_N = np.where((machine_N == made.exchanged) & (rows.times_N >= made.cause_at_s + 30.0), len(machines) - 1, machine_N)
    stages = dict(zip(layout.machines, map(int, layout.stage_M), strict=True)) if layout.pipeline > 1 else {}
    roles = {m: "rollout" if other else "trainer" for m, other in zip(layout.machines, layout.rollout_M, strict=True)}
    return World(
        family=NAME,
        seed=layout.seed,
        machines=machines,
        metrics=layout.metrics,
        interval_s=layout.interval_s,
        step_s=layout.step_s,
        times_N=np.round(times_N, 3),
        machine_N=machine_N,
        device_N=rows.device_N,
        values_NK=rows.values_NK,
        truth=truth,
        devices=tuple(f"gpu{k}" for k in range(layout.gpus)) if layout.gpus > 1 else (),
        stages=stages,
        roles=roles if layout.rollout_M.any() else {},
        racks=_topology(layout, "rack", layout.rack_M),
        switches=_topology(layout, "leaf", layout.switch_M),
        clock_off_s=off_s,
    )


def draw(seed: int, *, fault: str | None = None, machines: int | None = None, duration_s: float | None = None) -> World:
    """One world of this family; see `Family.draw`. Raises ValueError for a fault that is none of FAULTS."""
    return build(plan(seed, fault=fault, machines=machines, duration_s=duration_s))
