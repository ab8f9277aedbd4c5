"""An upload becomes a recording: a table alone gets a job.toml, Arrow and JSON become Parquet.

Sizes are checked before anything is unpacked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from minder.ingest.sources.jobfile import RecordedJob, write_job
from minder.ingest.sources.recording import Recording
from minder.model.clock import parse_time
from minder.model.errors import BadInputError, RecordingError
from minder.model.topology import Parallelism
from minder.record.api.scores import ScoreJob, ScoreRequest
from serve.scoring.layout import SEGMENTS, SESSION

__all__ = ["MOST_COLUMNS", "YEARS_S", "Bounds", "check_size", "table_of", "unpack"]

_PARQUET, _ARROW_FILE, _ARROW_STREAM = b"PAR1", b"ARROW1", b"\xff\xff\xff\xff"
MOST_COLUMNS = 2000
YEARS_S = (0.0, 4_102_444_800.0)  # 1970 to 2100


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one upload may hold; span_s: from its first to its last sample or event.
    cells: rows of the grid times machines times metrics."""

    rows: int
    machines: int
    span_s: float
    cells: int


def unpack(folder: Path, name: str, bounds: Bounds) -> None:
    """Make `folder` a recording called `name` if its job does not say. Raises BadInputError with one line."""
    if (folder / SESSION).exists():
        _unpack_session(folder, name, bounds)
    elif (folder / "upload.json").exists():
        _unpack_json(folder, name, bounds)
    elif (folder / "upload.parquet").exists():
        _demand_magic(folder / "upload.parquet", "Parquet", (_PARQUET,))
        (folder / "upload.parquet").rename(folder / "telemetry.parquet")
    elif (folder / "upload.arrow").exists():
        _unpack_arrow(folder / "upload.arrow", folder / "telemetry.parquet", bounds)
    for path in sorted(folder.glob("*.parquet")):
        _check_parquet(path, bounds)
    if not (folder / "job.toml").exists():
        write_job(folder / "job.toml", _job(ScoreJob(), name, _machines(folder / "telemetry.parquet")))


def _demand_magic(path: Path, kind: str, magics: Sequence[bytes]) -> None:
    with path.open("rb") as file:
        begin = file.read(8)
    if not any(begin.startswith(magic) for magic in magics):
        raise BadInputError(f"the body is not {kind}, as its Content-Type says: name the type that it has")


def _check_parquet(path: Path, bounds: Bounds) -> None:
    """What the file says of itself, without unpacking it: a few bytes can stand for billions of rows."""
    try:
        plan = pl.scan_parquet(path)
        columns = len(plan.collect_schema())
        rows = int(plan.select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise RecordingError(f"{path} is no readable parquet file ({reason}): write it again") from error
    _demand_size(path.name, rows, columns, bounds)


def _demand_size(name: str, rows: int, columns: int, bounds: Bounds) -> None:
    if rows > bounds.rows:
        raise BadInputError(f"{name} has {rows} rows: send {bounds.rows} at most, such as a shorter time")
    if columns > MOST_COLUMNS:
        raise BadInputError(f"{name} has {columns} columns: send {MOST_COLUMNS} at most")
    if rows * columns > bounds.cells:
        raise BadInputError(f"{name} has {rows} rows of {columns} columns: send {bounds.cells} values at most, such as a shorter time")


def _unpack_arrow(path: Path, target: Path, bounds: Bounds) -> None:
    _demand_magic(path, "Arrow", (_ARROW_FILE, _ARROW_STREAM))
    with path.open("rb") as file:
        is_file = file.read(6) == _ARROW_FILE
    try:
        table = pl.read_ipc(path) if is_file else pl.read_ipc_stream(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0]
        raise BadInputError(f"the Arrow body cannot be read ({reason[:200]}): write it again") from error
    _demand_size("the Arrow body", table.height, table.width, bounds)
    table.write_parquet(target)


def _machines(path: Path) -> tuple[str, ...]:
    """The machines that a table names, in the order of their names."""
    plan = pl.scan_parquet(path)
    if plan.collect_schema().get("machine") not in (pl.String, pl.Categorical):
        raise BadInputError('the table needs a column "machine" of strings')
    found = plan.select(pl.col("machine").cast(pl.String).drop_nulls().unique().sort()).collect()
    return tuple(found["machine"].to_list())


def _unpack_session(folder: Path, name: str, bounds: Bounds) -> None:
    """The newest rows of a session, as many as may be scored."""
    job = ScoreJob.model_validate_json((folder / SESSION).read_bytes())
    paths = sorted((folder / SEGMENTS).glob("*.parquet"))
    table = pl.concat([pl.read_parquet(path) for path in paths], how="diagonal_relaxed")
    oldest = table["timestamp"].max() - pl.duration(seconds=bounds.span_s)
    table = table.filter(pl.col("timestamp") >= oldest).tail(bounds.rows)
    _demand_size("the session", table.height, table.width, bounds)
    table.write_parquet(folder / "telemetry.parquet")
    machines = job.machines or tuple(sorted(set(table["machine"].unique().to_list()) - set(job.standbys)))
    write_job(folder / "job.toml", _job(job, job.name or name, machines))


def _unpack_json(folder: Path, name: str, bounds: Bounds) -> None:
    try:
        request = ScoreRequest.model_validate_json((folder / "upload.json").read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part)[:80] for part in first["loc"][:6])
        raise BadInputError(f"{where or 'the body'}: {first['msg'].removeprefix('Value error, ')[:200]}") from error
    _demand_size("samples", len(request.samples), 0, bounds)
    machines = request.job.machines
    if machines is None:
        machines = tuple(sorted({str(row["machine"]) for row in request.samples if row.get("machine")} - set(request.job.standbys)))
    write_job(folder / "job.toml", _job(request.job, request.job.name or name, machines))
    if request.samples:
        table_of(request.samples).write_parquet(folder / "telemetry.parquet")
    if request.events:
        (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in request.events))


def table_of(samples: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """Rows as a table with a timestamp in milliseconds. Raises BadInputError that names the entry."""
    names = list(dict.fromkeys(key for row in samples for key in row))
    if len(names) > MOST_COLUMNS:
        raise BadInputError(f"samples name {len(names)} metrics: send {MOST_COLUMNS} at most")
    columns: dict[str, list[Any]] = {name: [row.get(name) for row in samples] for name in names}
    for name, values in columns.items():
        if name == "timestamp":
            columns[name] = [_milliseconds(value, row) for row, value in enumerate(values, start=1)]
            continue
        wanted: Any = str if name in ("machine", "device") else float
        wrong = next((row for row, value in enumerate(values, start=1) if value is not None and not isinstance(value, wanted)), None)
        if wrong is not None:
            raise BadInputError(f"samples, entry {wrong}: {name[:80]} must be a {'string' if wanted is str else 'number'}")
    types: dict[str, Any] = {name: pl.String if name in ("machine", "device") else pl.Float64 for name in names} | {"timestamp": pl.Int64}
    if "timestamp" not in columns:
        raise BadInputError("samples have no timestamp: give ISO 8601 or unix seconds")
    return pl.DataFrame(columns, schema_overrides=types).with_columns(pl.col("timestamp").cast(pl.Datetime("ms", "UTC")))


def _milliseconds(value: Any, row: int) -> int:
    try:
        time_s = parse_time(value) if isinstance(value, str) else float(value)
    except (ValueError, TypeError, OverflowError):
        time_s = float("nan")
    if not YEARS_S[0] <= time_s <= YEARS_S[1]:
        raise BadInputError(f"samples, entry {row}: timestamp is no time: give ISO 8601 or unix seconds, between 1970 and 2100")
    return round(time_s * 1000)


def _job(job: ScoreJob, name: str, machines: tuple[str, ...]) -> RecordedJob:
    if not machines:
        raise BadInputError("no machine is named: nothing can be said of an upload without machines")
    axes: dict[str, Any] = {str(axis): size for axis, size in job.parallelism.items()}
    if any(isinstance(size, str) != (axis == "rank_order") for axis, size in axes.items()):
        raise BadInputError("job.parallelism: sizes are whole numbers, rank_order is a string")
    gpus = job.gpus_per_machine or 1
    parallelism = Parallelism(**(axes or {"data": len(machines) * gpus}))
    if job.gpus_per_machine is None:
        gpus = max(1, parallelism.world_size // len(machines))
    return RecordedJob(name, machines, job.standbys, gpus, parallelism, job.sample_interval_seconds, job.topology)


def check_size(recording: Recording, bounds: Bounds) -> None:
    """What a recording would take to replay. Raises BadInputError that says what to send less of."""
    frames = recording.frames
    if len(frames.machines) > bounds.machines:
        raise BadInputError(f"{len(frames.machines)} machines: send {bounds.machines} at most")
    begin_s, end_s = recording.start_s, recording.end_s
    if begin_s is None or end_s is None:
        return
    if not (YEARS_S[0] <= begin_s and end_s <= YEARS_S[1]):
        raise BadInputError("a timestamp lies before 1970 or after 2100: mend the clock, or the unit of the column")
    span_s = end_s - begin_s
    if span_s > bounds.span_s:
        raise BadInputError(f"from the first to the last timestamp are {span_s:.0f} s: send {bounds.span_s:.0f} s at most")
    cells = span_s / recording.interval_s * len(frames.machines) * max(1, len(frames.metrics))
    if cells > bounds.cells:
        raise BadInputError(f"{cells:.3g} values on the grid of {recording.interval_s:g} s: send a shorter time, or fewer machines")
