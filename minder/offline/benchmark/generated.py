"""Inputs that are made from a seed: a world of a family, or a recording of a recipe, as a folder of docs/recordings.md, and its truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from minder.ingest.sources.jobfile import RecordedJob, write_job
from minder.model.errors import MinderError
from minder.model.topology import Parallelism
from minder.offline.benchmark.right import Right
from minder.offline.benchmark.seeds import derive
from minder.offline.worlds.shown import is_shown
from minder.offline.worlds.window import window_of
from minder.simulate.cluster.recipe import load_recipe
from minder.simulate.cluster.simulate import make
from minder.simulate.cluster.writer import write_events, write_recording
from minder.simulate.worlds.catalogue import load_family
from minder.simulate.worlds.world import NO_FAULT, World

__all__ = ["write_drawn", "write_simulated", "write_world"]

_TRIES = 40


def write_drawn(folder: Path, family: str, seed: str, index: int) -> Right:
    """A world of this family, drawn anew until its folder can say all of it and its telemetry shows its fault, if it has one.

    Where telemetry shows nothing, no program could be right: `is_shown` compares the world with its twin without the fault, by no detector.
    """
    for attempt in range(_TRIES):
        number = derive(seed, "telemetry", family, index, attempt)
        world = load_family(family).draw(number)
        if _stages(world) is not None and _is_fair(world, number):
            write_world(folder, world)
            return _right(folder.name, world)
    raise MinderError(f"family {family}: {_TRIES} worlds of one seed show no fault: the family is broken")


def write_simulated(folder: Path, recipe: str, seed: str, index: int) -> Right:
    """A recording of a recipe, with its events."""
    made = make(load_recipe(recipe), derive(seed, "logs", recipe), index)
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_recording(folder, made.scene.shape, made.site, made.rows, made.begin_ms)
    write_events(folder, made.signals)
    truth = made.truth
    seconds = float(np.ptp(made.rows.time_R)) / 1000.0
    return Right(folder.name, "logs", truth.machines, fault=truth.fault, onset_s=truth.onset_s, seconds=seconds)


def write_world(folder: Path, world: World) -> None:
    """job.toml and telemetry.parquet. Pipeline stages fill machines in order, so a world whose stages differ in size cannot be written."""
    stages = _stages(world)
    if stages is None:
        raise MinderError(f"{world.family}:{world.seed} has stages of several sizes: a job.toml cannot say that")
    folder.mkdir(parents=True)
    domains = {name: _place(world, name) for name in world.machines if _place(world, name)}
    parallelism = Parallelism(tensor=1, pipeline=stages, data=len(world.machines) // stages)
    write_job(folder / "job.toml", RecordedJob("job", world.machines, (), 1, parallelism, world.interval_s, domains, world.roles))
    _write_telemetry(folder / "telemetry.parquet", world)


def _write_telemetry(path: Path, world: World) -> None:
    stamps = pl.Series(np.round(world.times_N * 1000.0).astype(np.int64)).cast(pl.Datetime("ms", "UTC"))
    columns = {"timestamp": stamps, "machine": pl.Series(np.array(world.machines)[world.machine_N].tolist(), dtype=pl.String)}
    if world.devices:
        names = np.array([*world.devices, None], dtype=object)  # -1 is the last: the whole machine
        columns["device"] = pl.Series(names[world.device_N].tolist(), dtype=pl.String)
    for k, metric in enumerate(world.metrics):
        columns[metric] = pl.Series(world.values_NK[:, k].astype(np.float32)).fill_nan(None)
    pl.DataFrame(columns).write_parquet(path, compression="zstd", statistics=False)


def _stages(world: World) -> int | None:
    """How many equal stages, in the order of machines; None where they are not equal or not in order."""
    if not world.stages:
        return 1
    stage_M = [world.stages.get(name) for name in world.machines]
    count = len(set(stage_M))
    size = len(stage_M) // count
    return count if stage_M == [number for number in range(count) for _ in range(size)] else None


def _place(world: World, name: str) -> dict[str, str]:
    kinds = {"rack": world.racks, "switch": world.switches}
    return {kind: table[name] for kind, table in kinds.items() if name in table}


def _is_fair(world: World, number: int) -> bool:
    truth = world.truth
    if truth.fault is None or truth.onset_s is None:
        return truth.fault is None
    twin = window_of(load_family(world.family).draw(number, fault=NO_FAULT))
    return is_shown(window_of(world), twin, truth.culprits or truth.group, truth.onset_s, truth.end_s)


def _right(name: str, world: World) -> Right:
    truth = world.truth
    seconds = float(np.ptp(world.times_N)) if len(world.times_N) else 0.0
    names = truth.culprits or truth.group
    return Right(name, "telemetry", names, fault=truth.fault, onset_s=truth.onset_s if truth.fault else None, seconds=seconds)
