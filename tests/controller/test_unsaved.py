"""What a restart would throw away, and how long one takes: told by manifests and phases, not supposed."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.orders import job_work as module
from minder.act.controller.orders.job_work import CheckpointLook, JobWork, kept_in_memory, restart_s, unsaved_s
from minder.diagnose.job_mode.tracker import JobTracker
from minder.edge.cache.record import Record, RecordName, body_path, write_head
from minder.edge.checkpoint.manifest import Manifest, ManifestFile, checkpoint_path, publish
from minder.model.evidence import Signal
from minder.model.observation import MachineView, Observation, WorkerView

ASSUMED_S = 900.0


def save(folder: Path, step: int, generation: int = 1) -> None:
    """A real manifest of a checkpoint."""
    path = checkpoint_path(folder, step, generation)
    path.mkdir(parents=True)
    (path / "part").write_bytes(b"x")
    publish(Manifest(path, step, generation, 1, 0.0, (ManifestFile("part", 1, "0" * 64),)))


@pytest.fixture
def run() -> Callable[..., JobTracker]:
    """run(steps): a rank that takes two seconds a step and began with its first at 1000 s; `saved_at`: steps at which it saved."""

    def play(steps: int, saved_at: tuple[int, ...] = ()) -> JobTracker:
        tracker = JobTracker()
        for step in range(1, steps + 1):
            now_s = 998.0 + 2.0 * step
            worker = WorkerView(0, 17, 0, "running", 1, step=step, step_time_s=now_s, first_step=1, first_step_time_s=1000.0)
            told: list[dict[str, Any]] = [{"phase": "checkpoint", "state": state} for state in ("begin", "end") if step in saved_at]
            signals = tuple(Signal(now_s, "phase", "m0", "", data=data) for data in told)
            tracker.update(Observation(now_s, None, signals, None, {"m0": MachineView("m0", 0.1, 0.1, (worker,))}))
        return tracker

    return play


def test_the_newest_manifest_counts(run: Callable[..., JobTracker], tmp_path: Path) -> None:
    look = CheckpointLook(tmp_path)
    tracker = run(100)
    assert unsaved_s(tracker, look.newest_step, ASSUMED_S) == ASSUMED_S, "nothing is saved yet, or by other means: not known"
    save(tmp_path, 40)
    assert unsaved_s(tracker, look.newest_step, ASSUMED_S) == pytest.approx(60 * 2.0)
    save(tmp_path, 99)
    (checkpoint_path(tmp_path, 100, 1)).mkdir()  # not published
    assert unsaved_s(tracker, look.newest_step, ASSUMED_S) == pytest.approx(2.0)


@pytest.mark.parametrize(("newest", "lost"), [(100, 1), (99, 1), (96, 4), (94, 6)], ids=str)
def test_a_job_that_keeps_some_steps_in_memory_loses_those_since(run: Callable[..., JobTracker], newest: int, lost: int) -> None:
    """As its caches say, by their launchers."""
    states = [{"kept": [{"step": newest, "generation": 1, "update": 0, "skipped": "", "time_s": 50.0}], "now_s": 51.0}, {}]
    assert JobWork(None, checkpoints="memory").unsaved_s(run(100), ASSUMED_S, states) == pytest.approx(lost * 2.0)


def test_a_job_that_keeps_every_step_in_memory_loses_one(run: Callable[..., JobTracker]) -> None:
    assert JobWork(None, checkpoints="memory").unsaved_s(run(100), ASSUMED_S) == pytest.approx(2.0)
    assert JobWork(None, checkpoints="memory").unsaved_s(run(0), ASSUMED_S) == ASSUMED_S  # no step is known yet
    assert JobWork(None).unsaved_s(run(100), ASSUMED_S) == ASSUMED_S


def test_a_declared_phase_counts_where_there_is_no_manifest(run: Callable[..., JobTracker]) -> None:
    look = CheckpointLook(None)
    assert unsaved_s(run(100, saved_at=(30, 70)), look.newest_step, ASSUMED_S) == pytest.approx(30 * 2.0)
    assert unsaved_s(run(100), look.newest_step, ASSUMED_S) == ASSUMED_S


def test_a_folder_that_does_not_answer_holds_nobody_up(run: Callable[..., JobTracker], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "_FOLDER_ANSWERS_S", 0.05)
    save(tmp_path, 40)
    look = CheckpointLook(tmp_path)
    assert look.newest_step() == 40
    hangs = threading.Event()
    monkeypatch.setattr("minder.edge.checkpoint.manifest.complete_checkpoints", lambda folder: hangs.wait(30.0) and [])
    assert [look.newest_step() for _ in range(3)] == [40, 40, 40]
    assert sum(thread.name == "minder-checkpoints" for thread in threading.enumerate()) == 1
    hangs.set()


def test_a_restart_takes_as_long_as_the_last_one(run: Callable[..., JobTracker]) -> None:
    assert restart_s(run(5), generation_start_s=880.0) == 120.0
    assert restart_s(run(5), generation_start_s=999.0) == 10.0
    assert restart_s(run(5), generation_start_s=math.inf) == 10.0, "of a job that we came upon nobody saw the start"
    assert restart_s(JobTracker(), generation_start_s=0.0) == 10.0


def _says(*steps: int, step_s: float = 10.0, stood_s: float = 0.0, **about: Any) -> dict[str, Any]:
    """A launcher whose cache keeps these steps, newest first."""
    kept = [{"step": step, "generation": 1, "time_s": 1000.0 - (steps[0] - step) * step_s, **about} for step in steps]
    return {"kept": kept, "now_s": 1000.0 + stood_s}


@pytest.mark.parametrize(
    ("states", "steps"),
    [
        ([], None),
        ([{}, {"generation": 3}], None),
        ([{"kept": [{"stage": 1}]}, {"kept": 7}], None),
        ([_says()], []),
        ([_says(9), {}], [9]),
        ([_says(9, 8, 7, 6)], [9, 8]),  # 7 and 6 are gone before the workers have ended
        ([_says(9, 8, 7, 6, stood_s=60.0)], [9, 8, 7, 6]),  # nothing pushes them out
        ([_says(9, 8, 7, 6, step_s=1.0)], [9]),
        ([_says(9, 8, 7, 6, step_s=60.0)], [9, 8, 7]),
        ([_says(10, 9, 8, 7), _says(9, 8, 7, 6)], [10, 9]),  # one is a step ahead
        ([_says(9, 8, 7, 6, stood_s=60.0), _says(9, stood_s=60.0)], [9, 8, 7, 6]),  # a machine that came later
    ],
)
def test_steps_in_memory_count_where_they_will_still_be_there(states: list[dict[str, Any]], steps: list[int] | None) -> None:
    found = kept_in_memory(states)
    assert (None if found is None else [each.step for each in found]) == steps


def _flush(folder: Path, step: int, ranks: tuple[int, ...], update: int = 0, skipped: str = "") -> None:
    folder.mkdir(exist_ok=True)
    for rank in ranks:
        name = RecordName(step, 1, rank)
        body_path(folder, name).touch()
        write_head(folder, Record(name, 2, 0, "", (), b"", update, skipped))


def test_a_job_that_saves_into_memory_goes_on_from_its_ring_or_from_what_was_flushed(tmp_path: Path) -> None:
    _flush(tmp_path / "disk", 100, (0, 1), update=2)
    _flush(tmp_path / "disk", 200, (0,), update=3)  # the other rank's is on its way
    work = JobWork(str(tmp_path / "disk"), checkpoints="memory")
    ring = [_says(207, 206, stood_s=60.0, update=3, skipped="5")]
    assert work.saved(ring) == ((207, "5"), (206, "5"), (100, ""))
    assert work.written_by(ring) == [(207, 3), (206, 3), (100, 2)]
    assert work.saved([]) == ((100, ""),), "what memory has is not known: the folder is"
    assert JobWork(None, checkpoints="memory").saved([]) is None
    assert JobWork(str(tmp_path / "none"), checkpoints="memory").saved([]) is None
    assert JobWork(str(tmp_path / "disk"), checkpoints="local").saved(ring) is None
