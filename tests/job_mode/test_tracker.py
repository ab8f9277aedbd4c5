"""Does the job step, and how fast: what the rules may rely on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.observation import Observation
from minder.model.telemetry import Window

Make = Callable[..., Any]


def run(scene: Any, tracker: JobTracker, until_s: float, *, step_s: float = 0.5, first: int = 1, from_s: float = 0.0) -> int:
    """Ticks once a second while the job steps every step_s; returns the last step."""
    step = first
    for tick in range(int(from_s) + 1, int(until_s) + 1):
        step = first + int((tick - from_s) / step_s)
        scene.answer(tick, step)
        tracker.update(scene.see(tick + 0.1))
    return step


def test_step_times_are_learned_from_the_heartbeats_and_not_from_the_ticks(scene: Any) -> None:
    tracker = JobTracker()
    run(scene, tracker, 20, step_s=0.25)
    assert tracker.steps.typical_s == pytest.approx(0.25)
    assert tracker.steps.recent_s(scene.see(20.2).now_s, 5.0) == pytest.approx(0.25)
    assert tracker.steps.step == 81


def test_a_job_that_steps_never_stalls_and_one_that_stands_does(scene: Any, start_s: float) -> None:
    tracker = JobTracker()
    run(scene, tracker, 20)
    assert tracker.stalled_s(scene.see(20.5)) == 0.0
    assert tracker.stalled_s(scene.see(22.0)) == 0.0
    assert tracker.stalled_s(scene.see(26.0)) == pytest.approx(6.0)


def test_the_limit_grows_with_the_jobs_own_steps(scene: Any) -> None:
    tracker = JobTracker()
    run(scene, tracker, 200, step_s=10.0)
    assert tracker.steps.stall_limit_s() == pytest.approx(30.0, rel=0.1)
    assert tracker.stalled_s(scene.see(220.0)) == 0.0
    assert tracker.stalled_s(scene.see(240.0)) > 0


def test_progress_of_one_rank_is_progress(scene: Any) -> None:
    tracker = JobTracker()
    step = run(scene, tracker, 20)
    scene.worker("m3", step=step + 10, step_time_s=scene.see(26.0).now_s)
    observation = scene.see(26.5)
    tracker.update(observation)
    assert tracker.stalled_s(observation) == 0.0
    assert tracker.steps.by_machine["m3"] == step + 10


def test_a_script_that_goes_back_to_a_checkpoint_of_its_own_makes_progress(scene: Any) -> None:
    """After a spike of the loss, in the same processes."""
    tracker = JobTracker()
    step = run(scene, tracker, 60)
    for tick in range(61, 120):
        scene.answer(tick, step - 100 + tick - 60)
        observation = scene.see(tick + 0.1)
        tracker.update(observation)
        assert tracker.stalled_s(observation) == 0.0
    assert tracker.steps.step == step - 41 and tracker.steps.reads_steps
    assert tracker.steps.by_machine == dict.fromkeys(tracker.steps.by_machine, step - 41)
    assert tracker.stalled_s(scene.see(130.0)) > 0.0, "and a hang after it is one"


def test_ranks_that_are_behind_one_that_is_gone_did_not_go_back(scene: Any) -> None:
    tracker = JobTracker()
    step = run(scene, tracker, 20)
    scene.worker("m3", step=step + 2, step_time_s=scene.see(20.2).now_s)
    tracker.update(scene.see(20.3))
    scene.worker("m3", step=None)
    for tick in (21, 22, 23):
        tracker.update(scene.see(tick))
    assert tracker.steps.step == step + 2 and tracker.steps.by_machine["m3"] == step + 2


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation", "compile"])
def test_a_declared_phase_is_no_stall_and_silence_counts_anew_after_it(scene: Any, phase: str) -> None:
    tracker = JobTracker()
    step = run(scene, tracker, 20)
    scene.answer(20, step, phase=phase)
    for tick in range(21, 60):
        observation = scene.see(tick)
        tracker.update(observation)
        assert tracker.stalled_s(observation) == 0.0
    scene.answer(20, step)
    after = scene.see(60.0)
    tracker.update(after)
    assert tracker.stalled_s(after) == 0.0
    assert tracker.stalled_s(scene.see(70.0)) == pytest.approx(10.0)


def test_an_unknown_phase_protects_nobody(scene: Any) -> None:
    tracker = JobTracker()
    step = run(scene, tracker, 20)
    scene.answer(20, step, phase="lunch")
    tracker.update(scene.see(30.0))
    assert tracker.stalled_s(scene.see(30.0)) > 0


def test_a_phase_of_an_earlier_generation_does_not_protect_the_present_one(make_scene: Make) -> None:
    """The page of a worker that died in a checkpoint still says "checkpoint"."""
    scene, tracker = make_scene(generation=2), JobTracker()
    step = run(scene, tracker, 20)
    scene.worker("m1", generation=1, phase="checkpoint", state="exited")
    old = scene.signal("phase", "m2", -5.0, phase="checkpoint", state="begin", generation=None)
    observation = scene.see(30.0, [old])
    tracker.update(observation)
    assert tracker.steps.step == step
    assert tracker.stalled_s(observation) > 0


def test_a_phase_on_a_machine_that_left_the_job_protects_nobody(scene: Any) -> None:
    tracker = JobTracker()
    run(scene, tracker, 20)
    scene.count = 3  # m3 is still in the fleet, not in the job
    scene.worker("m3", phase="evaluation")
    observation = scene.see(30.0)
    tracker.update(observation)
    assert tracker.stalled_s(observation) > 0


def test_an_agent_that_dies_inside_a_phase_does_not_keep_it_open(scene: Any) -> None:
    tracker = JobTracker()
    step = run(scene, tracker, 20)
    scene.answer(21, step, phase="checkpoint")
    tracker.update(scene.see(21.5, [scene.signal("phase", "m1", 21.0, phase="checkpoint", state="begin", generation=None)]))
    assert tracker.phases.phase == "checkpoint"
    run(scene, tracker, 30, first=step, from_s=22)
    assert tracker.phases.phase == ""
    assert tracker.stalled_s(scene.see(40.0)) > 0


def test_phases_told_by_agents_count_where_no_launcher_tells_any(make_scene: Make) -> None:
    scene, tracker = make_scene(), JobTracker()
    step = run(scene, tracker, 20)
    for machine in scene.machines:
        scene.views[machine] = scene.views[machine].__class__(machine, 0.2, None)
    begin = scene.signal("phase", "m1", 21.0, phase="evaluation", state="begin", generation=None)
    tracker.update(scene.see(21.2, [begin]))
    assert (tracker.phases.phase, tracker.steps.step) == ("evaluation", step)
    tracker.update(scene.see(40.0, [scene.signal("phase", "m1", 39.5, phase="evaluation", state="end", generation=None)]))
    assert tracker.phases.phase == ""


def test_a_new_generation_forgets_steps_but_keeps_how_long_a_step_takes(scene: Any) -> None:
    tracker = JobTracker()
    run(scene, tracker, 20, step_s=0.25)
    scene.generation, scene.started_s = 2, scene.started_s + 25
    scene.answer(26, None)
    tracker.update(scene.see(26.0))
    assert tracker.steps.steps_in_generation == 0 and math.isinf(tracker.steps.step)
    assert tracker.steps.typical_s == pytest.approx(0.25)
    assert not tracker.watches(scene.see(60.0))


def test_the_first_step_is_what_the_page_says_also_when_it_is_seen_late(make_scene: Make, start_s: float) -> None:
    scene, tracker = make_scene(generation=3), JobTracker()
    scene.answer(30.0, 40, first_step=31, first_step_time_s=start_s + 21.0)
    tracker.update(scene.see(30.2))
    assert tracker.steps.first == (31.0, start_s + 21.0)
    assert tracker.steps.steps_in_generation == 10


def test_steps_of_an_older_generation_are_not_the_present_ones(make_scene: Make) -> None:
    scene, tracker = make_scene(generation=2), JobTracker()
    scene.answer(5.0, 40, generation=1)
    tracker.update(scene.see(5.2))
    assert math.isinf(tracker.steps.step)


def test_what_was_called_slow_is_forgotten(scene: Any, start_s: float) -> None:
    tracker = JobTracker()
    step = run(scene, tracker, 20, step_s=0.25)
    run(scene, tracker, 120, step_s=1.0, first=step, from_s=20)
    tracker.steps.forget_slow(start_s + 20.5)
    assert tracker.steps.typical_s == pytest.approx(0.25)


def test_a_job_that_is_only_watched_steps_by_telemetry(start_s: float) -> None:
    tracker = JobTracker()
    for tick in range(20):
        values_TMK = np.array([[[2.0 * tick], [2.0 * tick - 1]]])
        window = Window(np.array([start_s + tick]), ("a", "b"), ("steps_total",), values_TMK, np.ones((1, 2), bool))
        tracker.update(Observation(start_s + tick, window))
    assert tracker.steps.step == 38
    assert tracker.steps.typical_s == pytest.approx(0.5)


def test_steps_of_telemetry_that_went_back_are_followed_from_there(start_s: float) -> None:
    """The window still holds the rows before."""
    tracker = JobTracker()
    series = [2.0 * tick for tick in range(30)] + [20.0 + 2.0 * tick for tick in range(10)]
    for tick in range(1, len(series)):
        rows = range(max(0, tick - 15), tick + 1)
        values_TMK = np.array([[[series[row]], [series[row] - 1]] for row in rows])
        window = Window(start_s + np.array(rows, float), ("a", "b"), ("steps_total",), values_TMK, np.ones((len(rows), 2), bool))
        tracker.update(Observation(start_s + tick, window))
    assert tracker.steps.step == 38 and tracker.steps.advanced_s == start_s + 39
    assert tracker.steps.typical_s == pytest.approx(0.5)
