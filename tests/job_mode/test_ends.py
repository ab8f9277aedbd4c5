"""A job whose workers have ended, by their launchers' word, does not step, whatever its step counter said last."""

from __future__ import annotations

from typing import Any

import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.job_mode import JobMode


def stepping(scene: Any, tracker: JobTracker) -> None:
    """A step in ten seconds, so that a minute without any is no stall by the step counter."""
    for at_s in range(0, 300, 10):
        scene.answer(at_s, at_s // 10 + 1)
        tracker.update(scene.see(at_s + 0.1))


def look(scene: Any, tracker: JobTracker, at_s: float, *signals: Any) -> JobMode:
    mode = tracker.update(scene.see(at_s, signals)).mode
    assert mode is not None
    return mode


@pytest.mark.parametrize("gone", [("m1",), ("m0", "m1", "m2", "m3")], ids=["one", "all"])
def test_a_job_whose_workers_ended_stands_from_their_end_on(scene: Any, start_s: float, gone: tuple[str, ...]) -> None:
    tracker = JobTracker()
    stepping(scene, tracker)
    assert look(scene, tracker, 291.0).likeliest == "stepping"
    for machine in gone:
        scene.worker(machine, state="exited")
    mode = look(scene, tracker, 292.0, *(scene.killed(machine, 291.5) for machine in gone))
    assert (mode.likeliest, mode.source, mode.since_s) == ("stalled", "workers", start_s + 291.5)
    for machine in gone:
        scene.worker(machine, state="exited", generation=-1)  # its launcher was started again, and knows nothing of it
    assert look(scene, tracker, 299.0) == mode


def test_a_step_that_was_under_way_is_no_going_on_and_further_ones_are(scene: Any) -> None:
    tracker, modes = JobTracker(), []
    stepping(scene, tracker)
    for step in (31, 32, 33):
        scene.answer(260.0 + step, step)
        scene.worker("m1", state="exited", step=30)
        modes.append(look(scene, tracker, 260.5 + step))
    assert [(mode.likeliest, mode.source) for mode in modes] == [
        ("stalled", "workers"), ("stalled", "workers"), ("stepping", "step counter")
    ]  # fmt: skip


def test_the_next_generation_begins_with_nothing_of_it(scene: Any) -> None:
    tracker = JobTracker()
    stepping(scene, tracker)
    scene.worker("m1", state="exited")
    assert look(scene, tracker, 292.0).source == "workers"
    scene.generation = 2
    scene.answer(300.0, 31)
    scene.worker("m1", state="exited", generation=1)  # of before
    assert look(scene, tracker, 300.5).source != "workers"


@pytest.mark.parametrize(
    ("code", "expected"), [(0, ("idle_phase", "phase event")), (1, ("stalled", "workers"))], ids=["the script is through", "a failure"]
)
def test_a_last_checkpoint_is_believed_only_where_the_others_ended_well(scene: Any, code: int, expected: tuple[str, str]) -> None:
    tracker = JobTracker()
    stepping(scene, tracker)
    scene.worker("m0", phase="checkpoint")
    scene.worker("m1", state="exited")
    mode = look(scene, tracker, 292.0, scene.left("m1", 291.0, code))
    assert (mode.likeliest, mode.source) == expected


def test_a_worker_that_died_in_a_phase_is_in_none(scene: Any) -> None:
    tracker = JobTracker()
    stepping(scene, tracker)
    scene.worker("m1", phase="checkpoint")
    look(scene, tracker, 292.0)
    assert tracker.phases.phase == "checkpoint"
    scene.worker("m1", phase="checkpoint", state="exited")
    look(scene, tracker, 293.0)
    assert not tracker.phases.phase


def test_a_clock_that_is_set_moves_the_end_with_it(scene: Any, start_s: float) -> None:
    tracker = JobTracker()
    stepping(scene, tracker)
    scene.worker("m1", state="exited")
    look(scene, tracker, 292.0, scene.killed("m1", 291.5))
    tracker.move(3600.0)
    assert look(scene, tracker, 3893.0).since_s == start_s + 3891.5
