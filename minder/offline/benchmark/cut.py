"""A recording as it was known at a time: whether a verdict needed what came later (RULES.md)."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from minder.model.clock import parse_time

__all__ = ["cut_recording"]


def cut_recording(folder: Path, copy: Path, until_s: float) -> None:
    """Writes to `copy` what the recording had until then, inclusive: samples, events, and captures by their folders' times."""
    shutil.copytree(folder, copy)
    moment = datetime.fromtimestamp(until_s, UTC)
    table = copy / "telemetry.parquet"
    if table.exists():
        pl.read_parquet(table).filter(pl.col("timestamp") <= moment).write_parquet(table)
    events = copy / "events.jsonl"
    if events.exists():
        lines = events.read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if line.strip() and parse_time(json.loads(line)["time"]) <= until_s]
        events.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    for captures in (*copy.glob("stacks/*Z"), *copy.glob("collectives/*Z")):
        if datetime.strptime(captures.name, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) > moment:
            shutil.rmtree(captures)
