"""Writes recordings and their truth (docs/recordings.md); the same values give the same bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from minder.ingest.sources.events import Truth, signal_line, write_truth
from minder.ingest.sources.jobfile import write_job
from minder.model.errors import BadInputError
from minder.model.evidence import Signal
from minder.simulate.cluster.scrape import Rows, Site
from minder.simulate.cluster.shape import JobShape

__all__ = ["prepare_folder", "write_events", "write_recording", "write_truths"]


def prepare_folder(folder: Path) -> None:
    """Make the folder. Raises BadInputError where there is something in it already: recordings of two runs would mix."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise BadInputError(f"--out {folder} cannot be written: {error.strerror}: name another folder") from error
    if occupied:
        raise BadInputError(f"--out {folder} is not empty: name a new folder")


def write_recording(folder: Path, shape: JobShape, site: Site, rows: Rows, begin_ms: int) -> None:
    """job.toml and telemetry.parquet of one recording."""
    folder.mkdir()
    write_job(folder / "job.toml", shape.recorded(folder.name, site.interval_s))
    times = pl.Series(begin_ms + rows.time_R, dtype=pl.Int64).cast(pl.Datetime("ms", "UTC"))
    machines = pl.Series(np.array(shape.machines)[rows.machine_R].tolist(), dtype=pl.String)
    columns = {"timestamp": times, "machine": machines}
    for k, model in enumerate(site.models):
        column = rows.values_RK[:, k].astype(np.float32)
        columns[model.name] = pl.Series(column).fill_nan(None)
    pl.DataFrame(columns).write_parquet(folder / "telemetry.parquet", compression="zstd", statistics=False)


def write_events(folder: Path, signals: list[Signal]) -> None:
    """events.jsonl; no file where the site keeps none."""
    if signals:
        (folder / "events.jsonl").write_text("".join(signal_line(signal) for signal in signals), encoding="utf-8")


def write_truths(folder: Path, truths: list[Truth]) -> None:
    write_truth(folder / "truth.json", truths)
