"""The telemetry generator of many tests, and recordings written with it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest

from minder.model.evidence import Verdict
from minder.offline.evaluation.replay import replay
from minder.simulate.worlds.families import classic

sys.path.insert(0, str(Path(__file__).parents[1] / "stacks"))  # dumps and places: stacks to put into a recording


@pytest.fixture(scope="session")
def generator() -> ModuleType:
    return classic


def write_recording(folder: Path, columns: Any, pipeline: int = 1) -> Path:
    """A recording folder of docs/recordings.md from generated columns; rows in no order."""
    folder.mkdir(parents=True)
    machines = ", ".join(f'"{name}"' for name in columns.machines)
    data = len(columns.machines) // pipeline
    (folder / "job.toml").write_text(
        f'name = "{folder.name}"\nmachines = [{machines}]\ngpus_per_machine = 1\nsample_interval_seconds = {columns.interval_s}\n'
        f"[parallelism]\ntensor = 1\npipeline = {pipeline}\ndata = {data}\n",
        encoding="utf-8",
    )
    table = {
        "timestamp": [datetime.fromtimestamp(time_s, tz=UTC) for time_s in columns.times_N],
        "machine": [columns.machines[m] for m in columns.machine_N],
    }
    frame = pl.DataFrame(table).with_columns(
        pl.col("timestamp").dt.cast_time_unit("ms"),
        *(pl.Series(name, columns.values_NK[:, k]) for k, name in enumerate(columns.metrics)),
    )
    frame.sample(fraction=1.0, shuffle=True, seed=1).write_parquet(folder / "telemetry.parquet")
    return folder


@pytest.fixture(scope="session")
def hang(generator: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """(folder, columns) of a job of eight machines of which one hangs after six minutes."""
    recipe = generator.Recipe(seed=11, fault="hang", machines=8, pipeline=2, interval_s=1.0, duration_s=520, onset_s=360.0)
    columns = generator.generate(recipe)
    return write_recording(tmp_path_factory.mktemp("recordings") / "hang", columns, 2), columns


@pytest.fixture(scope="session")
def hang_verdicts(hang: tuple[Path, Any]) -> tuple[Verdict, ...]:
    """What a replay of the whole hang says."""
    return tuple(replay(hang[0]))


@pytest.fixture(scope="session")
def healthy(generator: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    recipe = generator.Recipe(seed=12, machines=8, pipeline=2, interval_s=10.0, duration_s=900)
    columns = generator.generate(recipe)
    return write_recording(tmp_path_factory.mktemp("recordings") / "healthy", columns, 2), columns


@pytest.fixture(scope="session")
def long_hang(generator: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """(folder, columns) of a hang that lasts until four minutes of continuity have passed."""
    recipe = generator.Recipe(seed=11, fault="hang", machines=8, interval_s=10.0, duration_s=900, onset_s=400.0)
    columns = generator.generate(recipe)
    return write_recording(tmp_path_factory.mktemp("recordings") / "long-hang", columns), columns
