"""Rows of telemetry as NDJSON, read line by line into a table. It runs in the process that reads uploads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from minder.ingest.sources.frames import why_impossible
from minder.model.clock import parse_time
from minder.model.errors import BadInputError
from minder.record.api.fields import NAME
from serve.scoring.layout import LAST, NEW, ROWS
from serve.scoring.unpack import MOST_COLUMNS, YEARS_S, Bounds, table_of

__all__ = ["read_rows"]

_MOST_LINE = 64 * 1024
_CHUNK = 20_000
_NAME = re.compile(NAME)


@dataclass(slots=True)
class _Batch:
    """What was read so far. begin_s, end_s: the oldest and the newest row, of the session too."""

    begin_s: float
    end_s: float
    rows: int = 0
    names: set[str] = field(default_factory=set)


def read_rows(folder: Path, bounds: Bounds, newest_s: float | None) -> dict[str, Any]:
    """Read ROWS of `folder` behind LAST, if there is one, into NEW. newest_s: of the session before.

    The answer: added (rows), machines, begin_s, end_s, refused (the first line that does not hold and why, null where all do); the rows
    before that line are in NEW.
    """
    found = _Batch(math.inf, -math.inf if newest_s is None else newest_s)
    tables = [pl.read_parquet(folder / LAST)] if (folder / LAST).exists() else []
    machines: set[str] = set()
    refused = None
    chunk: list[Mapping[str, Any]] = []
    try:
        for row in _rows(folder / ROWS, bounds, found):
            chunk.append(row)
            machines.add(row["machine"])
            if len(chunk) == _CHUNK:
                tables.append(table_of(chunk))
                chunk = []
    except BadInputError as error:
        refused = str(error)
    if chunk:
        tables.append(table_of(chunk))
    if found.rows:
        pl.concat(tables, how="diagonal_relaxed").write_parquet(folder / NEW)
    return {
        "added": found.rows,
        "machines": sorted(machines),
        "begin_s": found.begin_s if found.rows else None,
        "end_s": found.end_s if found.rows else None,
        "refused": refused,
    }


def _rows(path: Path, bounds: Bounds, found: _Batch) -> Iterator[Mapping[str, Any]]:
    """Rows with a timestamp in unix seconds. Raises BadInputError at the first line that does not hold."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(_MOST_LINE + 1):
            number += 1
            if len(line) <= _MOST_LINE and not line.strip():
                continue
            try:
                row = _row(line, bounds, found)
            except BadInputError as error:
                raise BadInputError(f"line {number}: {error}") from None
            if found.rows >= bounds.rows:
                raise BadInputError(f"line {number}: a request takes {bounds.rows} rows at most: send the rest in another")
            found.rows += 1
            found.begin_s, found.end_s = min(found.begin_s, row["timestamp"]), max(found.end_s, row["timestamp"])
            yield row


def _row(line: bytes, bounds: Bounds, found: _Batch) -> dict[str, Any]:
    if len(line) > _MOST_LINE:
        raise BadInputError(f"is longer than {_MOST_LINE} bytes")
    try:
        row = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadInputError(
            'is no JSON object: send one row a line, like {"timestamp": "2026-03-02T06:12:31Z", "machine": "node-1"}'
        ) from None
    if not isinstance(row, dict):
        raise BadInputError('is no JSON object: send one row a line, like {"timestamp": "2026-03-02T06:12:31Z", "machine": "node-1"}')
    numbers = {name: _number(name, value) for name, value in row.items() if name not in ("timestamp", "machine", "device")}
    if len(found.names | row.keys()) > MOST_COLUMNS:
        raise BadInputError(f"with it more than {MOST_COLUMNS} metrics are named")
    found.names |= row.keys()
    if not (isinstance(row.get("machine"), str) and len(row["machine"]) <= 255 and _NAME.match(row["machine"])):
        raise BadInputError("machine must be a name of letters, digits and _.:-")
    if not (row.get("device") is None or (isinstance(row["device"], str) and len(row["device"]) <= 255)):
        raise BadInputError("device must be a string, or left out")
    time_s = _time_s(row.get("timestamp"))
    if math.isfinite(found.end_s) and abs(time_s - found.end_s) > bounds.span_s:
        raise BadInputError(
            f"timestamp lies more than {bounds.span_s:g} s from the rows before it: mend the clock, or begin another session"
        )
    return row | numbers | {"timestamp": time_s}


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _number(name: str, value: Any) -> float | None:
    shown = name[:80].encode("ascii", "backslashreplace").decode()
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise BadInputError(f"{shown} must be a number, or null for no data")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    why = "give a finite number, or null for no data" if not math.isfinite(number) else why_impossible(name, number)
    if why is not None:
        raise BadInputError(f"{shown} is {number:g}: {why}")
    return number


def _time_s(value: Any) -> float:
    try:
        time_s = parse_time(value) if isinstance(value, str) else math.nan if isinstance(value, bool) else float(value)
    except (ValueError, TypeError, OverflowError):
        time_s = math.nan
    if not YEARS_S[0] <= time_s <= YEARS_S[1]:
        raise BadInputError("timestamp is no time: give ISO 8601 or unix seconds, between 1970 and 2100")
    return time_s
