"""Captures inside a recording: known from their time on, weighed against telemetry, and never a reason to fail."""

from __future__ import annotations

import json
import logging
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import places as at
import pytest
from dumps import Job

from minder.model.evidence import Verdict
from minder.offline.evaluation.replay import replay

DUMPS = Path(__file__).parents[1] / "collectives" / "data"


def accused(verdicts: list[Verdict]) -> list[tuple[str, ...]]:
    return [item.machines for item in verdicts if item.kind in ("machine", "group") and item.tier in ("evict", "page")]


def moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, tz=UTC).strftime("%Y%m%dT%H%M%SZ")


def copy(recording: tuple[Path, Any], tmp_path: Path, name: str = "copy") -> tuple[Path, Any]:
    folder = tmp_path / name
    shutil.copytree(recording[0], folder)
    return folder, recording[1]


def capture(folder: Path, names: tuple[str, ...], elsewhere: dict[str, at.Frames], state: str = "") -> None:
    """All wait for their gradients, but for those who stand elsewhere; those are in the kernel's `state`."""
    job = Job(folder, len(names)).stand([])
    for path in folder.iterdir():
        path.unlink()
    job.machines = list(names)
    job.stand(at.GRAD_SYNC)
    for name, frames in elsewhere.items():
        job.stand(frames, [names.index(name)])
    if state:
        job.state(state, [names.index(name) for name in elsewhere])


@pytest.fixture
def stuck(hang: tuple[Path, Any], tmp_path: Path) -> tuple[Path, Any, str]:
    """(folder, columns, another machine than the culprit) of a copy of the hang."""
    folder, columns = copy(hang, tmp_path)
    return folder, columns, next(name for name in reversed(columns.machines) if name != columns.culprit)


def test_stacks_that_agree_with_telemetry_make_it_surer(hang_verdicts: tuple[Verdict, ...], stuck: tuple[Path, Any, str]) -> None:
    folder, columns, _ = stuck
    capture(folder / "stacks" / moment(columns.onset_s + 20), columns.machines, {columns.culprit: at.READ})
    verdicts = list(replay(folder))
    before, after = hang_verdicts[0], verdicts[0]
    assert (after.machines, after.tier, after.sources) == ((columns.culprit,), "evict", ("stacks", "telemetry"))
    assert after.confidence > before.confidence
    assert any(item.source == "stacks" and "reading a file" in item.message for item in after.evidence)
    assert accused(verdicts) == [(columns.culprit,)]


def test_stacks_that_contradict_telemetry_only_leave_a_page_that_says_so(stuck: tuple[Path, Any, str]) -> None:
    folder, columns, other = stuck
    capture(folder / "stacks" / moment(columns.onset_s + 20), columns.machines, {other: at.READ})
    verdict = next(replay(folder))
    assert (verdict.machines, verdict.tier) == ((columns.culprit,), "page")
    assert any(f"stacks names {other}" in item.message for item in verdict.against)


def test_a_sure_capture_names_the_machine_before_telemetry_can(hang_verdicts: tuple[Verdict, ...], stuck: tuple[Path, Any, str]) -> None:
    folder, columns, _ = stuck
    capture(folder / "stacks" / moment(columns.onset_s + 20), columns.machines, {columns.culprit: at.READ}, "T")
    first = next(replay(folder))
    assert (first.machines, first.tier) == ((columns.culprit,), "evict")
    assert columns.onset_s + 20 <= first.time_s < hang_verdicts[0].time_s


def test_a_deadlock_of_the_workload_accuses_no_machine(stuck: tuple[Path, Any, str]) -> None:
    folder, columns, _ = stuck
    capture(folder / "stacks" / moment(columns.onset_s + 20), columns.machines, {columns.culprit: at.LOADER_WAIT})
    verdicts = list(replay(folder))
    assert accused(verdicts) == []
    assert [(item.kind, item.tier) for item in verdicts] == [("job", "page")]


def test_captures_of_a_job_at_work_name_nobody(healthy: tuple[Path, Any], tmp_path: Path) -> None:
    folder, columns = copy(healthy, tmp_path)
    for seconds in (200, 300, 310, 500):
        place = folder / "stacks" / moment(float(columns.times_N[0]) + seconds)
        capture(place, columns.machines, {columns.machines[3]: at.READ}, "D")
    assert list(replay(folder)) == []


@pytest.mark.lab
def test_nothing_is_known_of_a_capture_before_its_time(
    hang_verdicts: tuple[Verdict, ...], stuck: tuple[Path, Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, columns, _ = stuck
    taken_s = columns.onset_s + 20
    capture(folder / "stacks" / moment(taken_s), columns.machines, {columns.culprit: at.READ}, "T")
    whole = list(replay(folder))
    for until_s in (taken_s, taken_s + 30.5):
        assert list(replay(folder, until_s)) == [item for item in whole if item.time_s <= until_s]
    monkeypatch.setattr("minder.diagnose.stacks.read_captures", lambda path: pytest.fail(f"{path} was read"))
    assert list(replay(folder, taken_s - 1)) == [item for item in hang_verdicts if item.time_s < taken_s]


def test_a_flat_folder_is_known_at_the_last_row(hang_verdicts: tuple[Verdict, ...], stuck: tuple[Path, Any, str]) -> None:
    folder, columns, other = stuck
    capture(folder / "stacks", columns.machines, {other: at.READ}, "T")
    last_s = float(columns.times_N.max())
    assert list(replay(folder, last_s - 2)) == [item for item in hang_verdicts if item.time_s <= last_s - 2]
    (folder / "telemetry.parquet").unlink()
    (folder / "events.jsonl").write_text('{"time": "2026-03-02T05:46:30Z", "kind": "log", "level": "info", "message": "x"}\n')
    assert [(item.machines, item.tier) for item in replay(folder)] == [((other,), "page")]


@pytest.mark.parametrize(("state", "expected"), [("T", "page"), ("", None)])
def test_stacks_alone_page_when_they_are_sure_and_never_evict(state: str, expected: str | None, tmp_path: Path) -> None:
    names = tuple(f"node-{index:04d}" for index in range(8))
    capture(tmp_path / "stacks" / "20260302T061231Z", names, {names[5]: at.COMPUTE}, state)
    (tmp_path / "job.toml").write_text(f'name = "r"\nmachines = {json.dumps(names)}\n')
    verdicts = list(replay(tmp_path))
    assert [(item.machines, item.tier) for item in verdicts] == ([((names[5],), expected)] if expected else [])
    assert list(replay(tmp_path, 0.0)) == []


@pytest.mark.parametrize(("dumps", "machines", "tier"), [("nccl/lock_gil_1st", ("m1",), "page"), ("gloo/idle", None, None)])
def test_collectives_alone(dumps: str, machines: tuple[str, ...] | None, tier: str | None, tmp_path: Path) -> None:
    shutil.copytree(DUMPS / dumps, tmp_path / "collectives" / "20260302T061231Z")
    world = len(list((DUMPS / dumps).iterdir()))
    (tmp_path / "job.toml").write_text(f'name = "r"\nmachines = ["m0", "m1"]\n[parallelism]\ndata = {world}\n')
    verdicts = list(replay(tmp_path))
    assert [(item.machines, item.tier) for item in verdicts] == ([(machines, tier)] if machines else [])
    assert all(item.sources == ("collectives",) and item.since_s <= item.time_s for item in verdicts)


def test_a_mismatch_is_the_jobs(tmp_path: Path) -> None:
    shutil.copytree(DUMPS / "gloo" / "type", tmp_path / "collectives" / "20260302T061231Z")
    (tmp_path / "job.toml").write_text('name = "r"\nmachines = ["m0", "m1", "m2", "m3"]\n')
    assert [(item.kind, item.machines, item.tier) for item in replay(tmp_path)] == [("job", (), "page")]


@pytest.mark.lab
def test_folders_that_are_no_captures_are_a_warning_each_and_change_nothing(
    hang_verdicts: tuple[Verdict, ...], stuck: tuple[Path, Any, str], caplog: pytest.LogCaptureFixture
) -> None:
    folder, columns, _ = stuck
    for name in ("latest", "20261399T061231Z"):
        capture(folder / "stacks" / name, columns.machines, {columns.culprit: at.READ})
    broken = folder / "stacks" / moment(columns.onset_s)
    broken.mkdir()
    (broken / "processes.json").write_text("{")
    (folder / "collectives" / moment(columns.onset_s)).mkdir(parents=True)
    with caplog.at_level(logging.WARNING):
        assert list(replay(folder)) == list(hang_verdicts)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert any("latest" in text and "20261399T061231Z" in text for text in messages)
