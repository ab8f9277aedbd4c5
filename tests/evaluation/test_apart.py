"""A recording that ends its reader is refused in a line, and costs no other recording anything."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from minder.cli import main
from minder.model.errors import RecordingError
from minder.offline.evaluation.apart import replay_apart
from minder.offline.evaluation.replay import replay

DAMAGED = Path(__file__).parent / "damaged" / "telemetry.parquet"


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    folder = tmp_path / "damaged"
    folder.mkdir()
    shutil.copy(DAMAGED, folder / "telemetry.parquet")
    machines = ", ".join(f'"node-{number}"' for number in range(4))
    (folder / "job.toml").write_text(f'name = "damaged"\nmachines = [{machines}]\ngpus_per_machine = 1\n')
    return folder


@pytest.mark.lab
def test_a_table_that_ends_the_process_that_reads_it_is_one_line_and_the_others_are_replayed(
    damaged: Path, long_hang: tuple[Path, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(damaged), str(long_hang[0]), str(damaged)]) == 2
    captured = capfd.readouterr()
    assert [line.split(" cannot be read: ")[0] for line in captured.err.splitlines()] == [f"minder: {damaged}"] * 2
    assert "write it again" in captured.err
    assert [json.loads(line)["machines"] for line in captured.out.splitlines()] == [[long_hang[1].culprit]]


def test_the_table_of_the_test_above_really_ends_a_reader() -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"import polars; polars.read_parquet({str(DAMAGED)!r})"], capture_output=True, timeout=120, check=False
    )
    if run.returncode == 1:
        pytest.skip("this polars refuses the damaged table by itself")
    assert run.returncode == -signal.SIGABRT


@pytest.mark.lab
def test_the_verdicts_are_those_of_the_same_process_and_no_process_is_left_behind(long_hang: tuple[Path, Any]) -> None:
    here = list(replay(long_hang[0]))
    assert here
    assert [list(found) for found in replay_apart([long_hang[0], long_hang[0]], None)] == [here, here], "the next recording follows"
    assert not [process for process in multiprocessing.active_children() if process.name == "minder-replay"]


@pytest.mark.lab
def test_what_is_not_taken_does_not_reach_the_next_recording(long_hang: tuple[Path, Any], healthy: tuple[Path, Any]) -> None:
    found = replay_apart([long_hang[0], healthy[0]], None)
    first = next(found)
    next(first)
    assert list(next(found)) == []
    assert list(first) == []


@pytest.mark.lab
def test_a_reader_that_is_killed_is_told_as_that(long_hang: tuple[Path, Any]) -> None:
    found = replay_apart([long_hang[0], long_hang[0]], None)
    assert list(next(found))
    (child,) = (process for process in multiprocessing.active_children() if process.name == "minder-replay")
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(RecordingError, match="its reader was killed, probably for its memory"):
        list(next(found))


@pytest.mark.lab
def test_our_own_warnings_are_still_told(healthy: tuple[Path, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import polars as pl

    folder = tmp_path / "odd"
    shutil.copytree(healthy[0], folder)
    table = pl.read_parquet(folder / "telemetry.parquet").with_columns(pl.lit(1.0).alias("colour_of_the_rack"))
    table.write_parquet(folder / "telemetry.parquet")
    assert main(["replay", str(folder)]) == 0
    assert "colour_of_the_rack" in capfd.readouterr().err


def test_a_defect_of_ours_is_not_told_as_damage(long_hang: tuple[Path, Any], capfd: pytest.CaptureFixture[str]) -> None:
    found = replay_apart([long_hang[0]], cast("float", "no time"))
    with pytest.raises(RuntimeError, match="a defect of minder"):
        list(next(found))
    assert "TypeError" in capfd.readouterr().err


@pytest.fixture
def labelled(damaged: Path, long_hang: tuple[Path, Any], healthy: tuple[Path, Any], tmp_path: Path) -> Path:
    """Four recordings with their truth beside them; of two the table ends whoever reads it."""
    folder = tmp_path / "set"
    for name, source in (("a-damaged", damaged), ("b-hang", long_hang[0]), ("c-damaged", damaged), ("d-healthy", healthy[0])):
        shutil.copytree(source, folder / name)
    onset = datetime.fromtimestamp(long_hang[1].onset_s, tz=UTC).isoformat()
    truths = [{"recording": "b-hang", "fault": "hang", "machine": long_hang[1].culprit, "onset": onset}]
    truths += [{"recording": name, "fault": None} for name in ("a-damaged", "c-damaged", "d-healthy")]
    (folder / "truth.json").write_text(json.dumps(truths))
    return folder


@pytest.mark.parametrize("jobs", [pytest.param("1", marks=pytest.mark.release), "2"])
@pytest.mark.lab
def test_an_evaluation_outlives_the_table_and_judges_the_others(labelled: Path, jobs: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(labelled), "--format", "json", "--jobs", jobs]) == 2
    captured = capfd.readouterr()
    lines = captured.err.splitlines()
    assert [line.split(" cannot be read: ")[0] for line in lines] == [f"minder: {labelled / name}" for name in ("a-damaged", "c-damaged")]
    assert all("write it again" in line for line in lines)
    outcomes = {case["recording"]: case["outcome"] for case in json.loads(captured.out)["cases"]}
    assert outcomes == {"b-hang": "found", "d-healthy": "quiet"}


@pytest.mark.release
def test_a_training_outlives_the_table_and_learns_from_the_others(
    labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mlflow", reason="needs the models extra: pip install 'minder-cluster[models]'")
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path / "state"))
    data = '[data]\nrecordings = ["set"]\nheld_back = 0.0\n'
    (tmp_path / "site.toml").write_text(f'name = "site"\n{data}[search]\nparameters = {{ patience_s = [90.0, 60.0] }}\n')
    registry = f"sqlite:///{tmp_path}/mlflow.db"
    assert main(["train", str(tmp_path / "site.toml"), "--registry", registry, "--out", str(tmp_path / "model")]) == 2
    captured = capfd.readouterr()
    assert "registered models:/minder-detector/1" in captured.out
    refused = [line for line in captured.err.splitlines() if "cannot be read" in line]
    assert len(refused) == 2 and all("-damaged" in line and "write it again" in line for line in refused)
    assert "2 recordings to train on" in captured.err
    assert "gpu_power_draw_watts" in json.loads((tmp_path / "model" / "model.json").read_text())["ranges"]
