"""What a controller saw besides samples and events, tick by tick: who answered, what the workers did, the job's connections.

A recording of our own has it (docs/recordings.md): states.jsonl (the job as the controller knew it, a line per change),
fleet.parquet (a row per tick, machine and worker), and, where a rule asked for them, flows.parquet (connections),
reach.parquet (which peers could be reached), statements.jsonl (what stacks and collectives said) and studies.jsonl (what the what-if
analysis said of the job's traced steps).
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints

import polars as pl

from minder.ingest.sources.parts import PartTable, table_paths
from minder.model.clock import format_time, parse_time
from minder.model.errors import RecordingError, WireError
from minder.model.evidence import CaptureFinding, StepStudy
from minder.model.observation import JobView, MachineView, Observation, WorkerView
from minder.model.private import open_private
from minder.model.telemetry import ConnectivityProbe, Flow
from minder.wire.codec import from_json, to_json

__all__ = ["Sighting", "SightingRecorder", "read_sightings"]

T = TypeVar("T")
STATES, STATEMENTS, STUDIES, FLEET, FLOWS, REACH = "states.jsonl", "statements.jsonl", "studies.jsonl", "fleet", "flows", "reach"
_TIME = pl.Datetime("ms", "UTC")
_WORKER: dict[str, Any] = {
    "slot": pl.Int64,
    "pid": pl.Int64,
    "rank": pl.Int64,
    "state": pl.String,
    "generation": pl.Int64,
    "step": pl.Int64,
    "step_time_s": pl.Float64,
    "alive_time_s": pl.Float64,
    "phase": pl.String,
    "first_step": pl.Int64,
    "first_step_time_s": pl.Float64,
}
_FLEET: dict[str, Any] = {
    "timestamp": _TIME,
    "clock_error_s": pl.Float64,
    "machine": pl.String,
    "agent_age_s": pl.Float64,
    "launcher_age_s": pl.Float64,
}
_FLEET |= _WORKER
_KIND: dict[Any, Any] = {int: pl.Int64, float: pl.Float64, str: pl.String, bool: pl.Boolean}


def _columns(cls: type) -> dict[str, Any]:
    """timestamp: when the controller had it; time_s: on its machine's clock."""
    return {"timestamp": _TIME} | {name: _KIND[kind] for name, kind in get_type_hints(cls).items()}


def _defaults(cls: Any) -> dict[str, Any]:
    return {item.name: item.default for item in dataclasses.fields(cls) if item.default is not dataclasses.MISSING}


_FLOWS, _REACH = _columns(Flow), _columns(ConnectivityProbe)


@dataclass(frozen=True, slots=True)
class Sighting:
    """One tick of a controller. Ages in `fleet` are counted at time_s."""

    time_s: float
    job: JobView
    fleet: Mapping[str, MachineView]
    flows: tuple[Flow, ...] = ()
    clock_error_s: float = 0.05
    attempts: tuple[ConnectivityProbe, ...] = ()
    statements: tuple[CaptureFinding, ...] = ()
    studies: tuple[StepStudy, ...] = ()


class SightingRecorder:
    """Writes what each tick's rules were shown. `resume`: an earlier process of the same run began the files.

    part_rows, part_s: a part is written after so many rows of the fleet, or so many seconds.
    """

    def __init__(self, folder: Path, part_rows: int, part_s: float, *, resume: bool = False) -> None:
        self._fleet, self._flows, self._reach = PartTable(folder, FLEET), PartTable(folder, FLOWS), PartTable(folder, REACH)
        if resume:
            for table in (self._fleet, self._flows, self._reach):
                table.take_up()
            _cut_half_line(folder / STATES)
            _cut_half_line(folder / STATEMENTS)
            _cut_half_line(folder / STUDIES)
        self._states, self._folder = folder / STATES, folder
        self._part_rows, self._part_s = part_rows, part_s
        self._written: dict[str, Any] | None = None
        self._fleet_rows: list[dict[str, Any]] = []
        self._flow_rows: list[dict[str, Any]] = []
        self._reach_rows: list[dict[str, Any]] = []
        self._first_s = math.inf

    def append(self, observation: Observation) -> None:
        """Nothing is written of a tick without a job."""
        if observation.job is None:
            return
        stamp_ms = round(observation.now_s * 1000)
        state = _state(observation.job)
        if state != self._written:
            with open_private(self._states, "a", encoding="utf-8") as file:
                file.write(json.dumps({"time": format_time(observation.now_s), **state}) + "\n")
            self._written = state
        for name, items in ((STATEMENTS, observation.statements), (STUDIES, observation.studies)):
            if items:
                with open_private(self._folder / name, "a", encoding="utf-8") as file:
                    file.writelines(json.dumps({"timestamp": stamp_ms, **to_json(item)}) + "\n" for item in items)
        self._fleet_rows += _fleet_rows(observation, stamp_ms)
        self._flow_rows += [{**to_json(flow), "timestamp": stamp_ms} for flow in observation.flows]
        self._reach_rows += [{**to_json(attempt), "timestamp": stamp_ms} for attempt in observation.attempts]
        self._first_s = min(self._first_s, observation.now_s)
        if len(self._fleet_rows) >= self._part_rows or observation.now_s - self._first_s >= self._part_s:
            self.flush()

    def flush(self) -> None:
        rows, self._fleet_rows = self._fleet_rows, []
        flows, self._flow_rows = self._flow_rows, []
        attempts, self._reach_rows = self._reach_rows, []
        self._first_s = math.inf
        if rows:
            self._fleet.write(_frame(rows, _FLEET))
        if flows:
            self._flows.write(_frame(flows, _FLOWS))
        if attempts:
            self._reach.write(_frame(attempts, _REACH))

    def close(self) -> None:
        self.flush()
        self._fleet.close()
        self._flows.close()
        self._reach.close()


def _frame(rows: list[dict[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    plain = {**schema, "timestamp": pl.Int64}
    return pl.DataFrame(rows, schema=plain, strict=False).with_columns(pl.col("timestamp").cast(_TIME))


def _cut_half_line(path: Path) -> None:
    """What a writer that was killed within a line left of it."""
    if path.exists():
        text = path.read_bytes()
        path.write_bytes(text[: text.rfind(b"\n") + 1])


def _state(job: JobView) -> dict[str, Any]:
    """The job without its clock readings' noise: equal as long as nothing changed."""
    return {
        "name": job.name,
        "generation": job.generation,
        "phase": job.phase,
        "started": format_time(job.generation_start_s),
        "quiet_until": format_time(job.quiet_until_s) if math.isfinite(job.quiet_until_s) and job.quiet_until_s > 0 else None,
        "ranks": {str(rank): machine for rank, machine in job.rank_machine.items()},
        "standbys": list(job.standbys),
        "barred": list(job.barred),
    }


def _fleet_rows(observation: Observation, stamp_ms: int) -> list[dict[str, Any]]:
    """A row per worker; one row for a machine without any."""
    rows = []
    for machine, view in observation.fleet.items():
        seen = {"machine": machine, "agent_age_s": view.agent_age_s, "launcher_age_s": view.launcher_age_s}
        common = {"timestamp": stamp_ms, "clock_error_s": observation.clock_error_s, **seen}
        rows += [{**common, **{name: getattr(worker, name) for name in _WORKER}} for worker in view.workers] or [
            {**common, **dict.fromkeys(_WORKER)}
        ]
    return rows


def read_sightings(folder: Path, until_s: float = math.inf) -> tuple[Sighting, ...]:
    """All ticks in time order; none where the recording has no states.jsonl or no fleet. until_s is inclusive.

    Raises RecordingError that names the file, for a line or a column that cannot be read.
    """
    states = [item for item in _read_states(folder / STATES) if item[0] <= until_s]
    fleet = _read_table(folder, FLEET, _FLEET)
    if not states or fleet is None:
        return ()
    flows = _read_records(folder, FLOWS, Flow, _FLOWS)
    attempts = _read_records(folder, REACH, ConnectivityProbe, _REACH)
    statements, studies = _read_lines(folder / STATEMENTS, CaptureFinding), _read_lines(folder / STUDIES, StepStudy)
    found, place = [], -1
    for time_s, rows in _by_time(fleet, dict).items():
        while place + 1 < len(states) and states[place + 1][0] <= time_s + 1e-6:
            place += 1
        if place >= 0 and time_s <= until_s:
            error_s = rows[0]["clock_error_s"] or 0.05
            views = _views(rows, table_paths(folder, FLEET)[0])
            asked = tuple(flows.get(time_s, ())), error_s, tuple(attempts.get(time_s, ())), tuple(statements.get(time_s, ()))
            found.append(Sighting(time_s, states[place][1], views, *asked, tuple(studies.get(time_s, ()))))
    return tuple(found)


def _read_records(folder: Path, name: str, cls: type[T], schema: Mapping[str, Any]) -> dict[float, list[T]]:
    """What a rule asked for, by the time when the controller had it; nothing without the file."""
    table = _read_table(folder, name, schema, _defaults(cls))
    fields = [column for column in schema if column != "timestamp"]
    return {} if table is None else _by_time(table, lambda row: _record(cls, row, fields, table_paths(folder, name)[0]))


def _read_lines(path: Path, cls: type[T]) -> dict[float, list[T]]:
    """What captures or studies said, by the time when the controller had it. A last line that a crash cut off is left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    found: dict[float, list[T]] = {}
    for number, line in enumerate(lines, start=1):
        try:
            item = json.loads(line)
            found.setdefault(item.pop("timestamp") / 1000, []).append(from_json(cls, item))
        except (ValueError, KeyError, TypeError, AttributeError, WireError) as error:
            if number < len(lines):
                raise RecordingError(
                    f"{path}: line {number} is no {cls.__name__}: {error}; remove the file to replay without it"
                ) from error
    return found


def _by_time(table: pl.DataFrame, make: Any) -> dict[float, list[Any]]:
    """Timestamp in unix seconds to its rows, in time order."""
    found: dict[float, list[Any]] = {}
    times_ms = table["timestamp"].dt.epoch("ms").to_list()
    for stamp_ms, row in zip(times_ms, table.iter_rows(named=True), strict=True):
        found.setdefault(stamp_ms / 1000, []).append(make(row))
    return found


def _views(rows: Sequence[Mapping[str, Any]], path: Path) -> dict[str, MachineView]:
    views: dict[str, MachineView] = {}
    for row in rows:
        known = views.setdefault(row["machine"], MachineView(row["machine"], row["agent_age_s"], row["launcher_age_s"]))
        if row["slot"] is not None:
            views[row["machine"]] = replace(known, workers=(*known.workers, _record(WorkerView, row, _WORKER, path)))
    return views


def _record(cls: type[T], row: Mapping[str, Any], names: Iterable[str], path: Path) -> T:
    try:
        return from_json(cls, {name: row[name] for name in names})
    except WireError as error:
        raise RecordingError(f"{path}, machine {row['machine']}: {error}; remove the file to replay without it") from error


def _read_table(folder: Path, name: str, schema: Mapping[str, Any], added: Mapping[str, Any] = MappingProxyType({})) -> pl.DataFrame | None:
    """added: columns that a recording of an earlier version lacks, with what they mean where they are absent."""
    paths = table_paths(folder, name)
    if not paths:
        return None
    try:
        table = pl.concat([pl.read_parquet(path) for path in paths], how="diagonal_relaxed")
        table = table.with_columns(pl.lit(value).alias(column) for column, value in added.items() if column not in table.columns)
        table = table.with_columns(pl.col(column).fill_null(value) for column, value in added.items())
        return table.select(pl.col(column).cast(kind) for column, kind in schema.items()).sort("timestamp", maintain_order=True)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RecordingError(f"{paths[0]} cannot be read: {' '.join(str(error).split())[:200]}; remove it to replay without it") from error


def _read_states(path: Path) -> list[tuple[float, JobView]]:
    """A last line that a crash cut off is left out."""
    if not path.exists():
        return []
    lines, found = path.read_text(encoding="utf-8", errors="replace").splitlines(), []
    for number, line in enumerate(lines, start=1):
        try:
            item = json.loads(line)
            found.append((parse_time(item["time"]), _job(item)))
        except (ValueError, KeyError, TypeError, AttributeError, WireError) as error:
            if number < len(lines):
                raise RecordingError(
                    f"{path}: line {number} is no state of a job: {error}; remove the file to replay without it"
                ) from error
    return found


def _job(item: Mapping[str, Any]) -> JobView:
    ranks = sorted((int(rank), str(machine)) for rank, machine in item["ranks"].items())
    body = {
        "machines": tuple(dict.fromkeys(machine for _, machine in ranks)),
        "rank_machine": dict(ranks),
        "quiet_until_s": parse_time(item["quiet_until"]) if item["quiet_until"] else 0.0,
        "generation_start_s": parse_time(item["started"]),
    }
    return from_json(JobView, {**item, **body})
