"""The job's traced steps as a heat map: forward and backward of each worker, by data-parallel rank and pipeline stage; and a rank's
neighbours in each parallel dimension. One odd cell is a slow worker, an odd row a long stage, scattered ones uneven sequences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from minder.model.errors import WireError
from minder.model.evidence import StepStudy, StudiedWorker
from minder.model.topology import Parallelism
from minder.wire.codec import from_json
from serve.job_shapes import AXES

__all__ = ["HeatCell", "HeatMap", "Neighbours", "StepMap", "draw_steps"]

_LEVELS = ((1.5, "s3", "!!"), (1.25, "s2", "!"), (1.1, "s1", "·"))
_MOST_COLUMNS = 64
_MOST_NEIGHBOURS = 64
_AXES = {"tp": AXES["tp"], "cp": "context rank", "pp": AXES["pp"], "dp": AXES["dp"], "ep": "expert rank"}
_Other = tuple[int, str | None, float | None, float | None]


@dataclass(frozen=True, slots=True)
class HeatCell:
    """One worker in one direction. times: of the median of all workers; level, mark: a style, and the same as a sign."""

    rank: int
    machine: str
    seconds: float
    times: float
    level: str
    mark: str
    blamed: bool


@dataclass(frozen=True, slots=True)
class HeatMap:
    """rows: (stage, cells); columns: the data-parallel ranks that are drawn; undrawn: how many are not, all nearer to the median."""

    title: str
    columns: tuple[int, ...]
    rows: tuple[tuple[int, tuple[HeatCell | None, ...]], ...]
    undrawn: int


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Of one rank on one axis, itself always included. others: (rank, machine or None, forward, backward), the times as in HeatCell or
    None; undrawn: how many are not, all quicker than these."""

    axis: str
    others: tuple[_Other, ...]
    undrawn: int


@dataclass(frozen=True, slots=True)
class StepMap:
    """rank, machine, neighbours: of the rank that was asked for; cell: the rank that reports for it. stale: the job was started again
    since."""

    study: StepStudy
    maps: tuple[HeatMap, ...]
    stale: bool
    rank: int | None = None
    machine: str | None = None
    neighbours: tuple[Neighbours, ...] = ()
    cell: int | None = None


def draw_steps(
    found: Mapping[str, Any] | None, generation: int, layout: Parallelism | None, rank_machine: Mapping[int, str], rank: int | None
) -> StepMap | None:
    """found: whatif.json; None without one, or where this version cannot read it. layout: of the job, None where it is not known."""
    if found is None:
        return None
    try:
        study = from_json(StepStudy, found)
    except WireError:
        return None
    places = {(worker.dp_rank, worker.stage): worker for worker in study.workers}
    times = {key: (worker.forward_s, worker.backward_s) for key, worker in places.items()}
    middles = tuple(median([pair[index] for pair in times.values()] or [0.0]) or 1.0 for index in (0, 1))
    maps = tuple(_draw(title, index, study, middles[index]) for index, title in enumerate(("Forward", "Backward"))) if places else ()
    stale = found.get("generation") != generation
    if rank is None or not study.workers:
        return StepMap(study, maps, stale)
    known = None if stale else rank_machine.get(rank)
    machine = known or next((worker.machine for worker in study.workers if worker.rank == rank), None)
    worker_of, groups = _places(study, layout, rank)
    neighbours = _neighbours(worker_of, groups, {} if stale else rank_machine, rank, middles)
    own = worker_of.get(rank)
    return StepMap(study, maps, stale, rank, machine, neighbours, None if own is None else own.rank)


def _draw(title: str, index: int, study: StepStudy, middle_s: float) -> HeatMap:
    cells: dict[tuple[int, int], HeatCell] = {}
    for worker in study.workers:
        seconds = (worker.forward_s, worker.backward_s)[index]
        times = seconds / middle_s
        level, mark = next(((level, mark) for least, level, mark in _LEVELS if times >= least), ("s0", ""))
        blamed = worker.machine in study.blamed and (worker.against_peers or 0.0) >= 1.1
        cells[worker.dp_rank, worker.stage] = HeatCell(worker.rank, worker.machine, seconds, times, level, mark, blamed)
    ranks, stages = sorted({key[0] for key in cells}), sorted({key[1] for key in cells})
    worst = sorted(ranks, key=lambda rank: -max(cell.times for key, cell in cells.items() if key[0] == rank))
    columns = tuple(sorted(worst[:_MOST_COLUMNS]))
    rows = tuple((stage, tuple(cells.get((rank, stage)) for rank in columns)) for stage in stages)
    return HeatMap(title, columns, rows, len(ranks) - len(columns))


def _places(
    study: StepStudy, layout: Parallelism | None, rank: int
) -> tuple[Mapping[int, StudiedWorker | None], Mapping[str, Sequence[int]]]:  # fmt: skip
    """(rank to the worker that reports for it, axis to the ranks beside this one), itself included. By the job's layout; where that is not
    known, or does not fit the trace, by what the workers said of themselves."""
    own = {worker.rank: worker for worker in study.workers}
    fits = layout is not None and rank < layout.world_size and all(_agrees(layout, worker) for worker in study.workers)
    if layout is not None and fits:
        speaker = {tuple(sorted(_worker_of(layout, worker.rank).items())): worker for worker in study.workers}
        groups = {axis: layout.group(axis, rank) for axis, size in (*layout.axes(), ("ep", layout.expert)) if size > 1}
        near = {rank, *(other for group in groups.values() for other in group)}
        return {other: speaker.get(tuple(sorted(_worker_of(layout, other).items()))) for other in near}, groups
    here = own.get(rank)
    if here is None:
        return {}, {}
    groups = {
        "pp": tuple(worker.rank for worker in study.workers if worker.dp_rank == here.dp_rank),
        "dp": tuple(worker.rank for worker in study.workers if worker.stage == here.stage),
    }
    return own, groups


def _neighbours(
    worker_of: Mapping[int, StudiedWorker | None],
    groups: Mapping[str, Sequence[int]],
    rank_machine: Mapping[int, str],
    rank: int,
    middles: Sequence[float],
) -> tuple[Neighbours, ...]:  # fmt: skip
    found = []
    for axis, title in ((axis, title) for axis, title in _AXES.items() if axis in groups):
        others = [_beside(other, worker_of.get(other), rank_machine, middles) for other in groups[axis]]
        slowest = sorted(others, key=lambda other: (other[0] != rank, -max(other[2] or 0.0, other[3] or 0.0)))
        drawn = {other[0] for other in slowest[:_MOST_NEIGHBOURS]}
        shown = tuple(other for other in others if other[0] in drawn)
        found.append(Neighbours(title, shown, len(others) - len(shown)))
    return tuple(found)


def _beside(other: int, worker: StudiedWorker | None, rank_machine: Mapping[int, str], middles: Sequence[float]) -> _Other:
    machine = rank_machine.get(other) or (worker.machine if worker is not None else None)
    forward, backward = (None, None) if worker is None else (worker.forward_s / middles[0], worker.backward_s / middles[1])
    return other, machine, forward, backward


def _worker_of(layout: Parallelism, rank: int) -> dict[str, int]:
    """Where a rank stands, but for its place among those that share one worker's work."""
    return {axis: place for axis, place in layout.coordinates(rank).items() if axis not in ("tp", "cp")}


def _agrees(layout: Parallelism, worker: StudiedWorker) -> bool:
    if worker.rank >= layout.world_size:
        return False
    place = layout.coordinates(worker.rank)
    return (place["dp"], place["pp"]) == (worker.dp_rank, worker.stage)
