"""Does the job step, and how fast: what the rules may rely on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from minder.diagnose.verdicts.progress import Progress
from minder.model.observation import Observation
from minder.model.telemetry import Window

Make = Callable[..., Any]


def run(scene: Any, progress: Progress, until_s: float, *, step_s: float = 0.5, first: int = 1, from_s: float = 0.0) -> int:
    """Ticks once a second while the job steps every step_s; returns the last step."""
    step = first
    for tick in range(int(from_s) + 1, int(until_s) + 1):
        step = first + int((tick - from_s) / step_s)
        scene.answer(tick, step)
        progress.update(scene.see(tick + 0.1))
    return step


def test_step_times_are_learned_from_the_heartbeats_and_not_from_the_ticks(scene: Any) -> None:
    progress = Progress()
    run(scene, progress, 20, step_s=0.25)
    assert progress.typical_s == pytest.approx(0.25)
    assert progress.recent_s(scene.see(20.2).now_s, 5.0) == pytest.approx(0.25)
    assert progress.step == 81


def test_a_job_that_steps_never_stalls_and_one_that_stands_does(scene: Any, start_s: float) -> None:
    progress = Progress()
    run(scene, progress, 20)
    assert progress.stalled_s(scene.see(20.5)) == 0.0
    assert progress.stalled_s(scene.see(22.0)) == 0.0
    assert progress.stalled_s(scene.see(26.0)) == pytest.approx(6.0)


def test_the_limit_grows_with_the_jobs_own_steps(scene: Any) -> None:
    progress = Progress()
    run(scene, progress, 200, step_s=10.0)
    assert progress.stall_limit_s() == pytest.approx(30.0, rel=0.1)
    assert progress.stalled_s(scene.see(220.0)) == 0.0
    assert progress.stalled_s(scene.see(240.0)) > 0


def test_progress_of_one_rank_is_progress(scene: Any) -> None:
    progress = Progress()
    step = run(scene, progress, 20)
    scene.worker("m3", step=step + 10, step_time_s=scene.see(26.0).now_s)
    observation = scene.see(26.5)
    progress.update(observation)
    assert progress.stalled_s(observation) == 0.0
    assert progress.by_machine["m3"] == step + 10


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation", "compile"])
def test_a_declared_phase_is_no_stall_and_silence_counts_anew_after_it(scene: Any, phase: str) -> None:
    progress = Progress()
    step = run(scene, progress, 20)
    scene.answer(20, step, phase=phase)
    for tick in range(21, 60):
        observation = scene.see(tick)
        progress.update(observation)
        assert progress.stalled_s(observation) == 0.0
    scene.answer(20, step)
    after = scene.see(60.0)
    progress.update(after)
    assert progress.stalled_s(after) == 0.0
    assert progress.stalled_s(scene.see(70.0)) == pytest.approx(10.0)


def test_an_unknown_phase_protects_nobody(scene: Any) -> None:
    progress = Progress()
    step = run(scene, progress, 20)
    scene.answer(20, step, phase="lunch")
    progress.update(scene.see(30.0))
    assert progress.stalled_s(scene.see(30.0)) > 0


def test_a_phase_of_an_earlier_generation_does_not_protect_the_present_one(make_scene: Make) -> None:
    """The page of a worker that died in a checkpoint still says "checkpoint"."""
    scene, progress = make_scene(generation=2), Progress()
    step = run(scene, progress, 20)
    scene.worker("m1", generation=1, phase="checkpoint", state="exited")
    old = scene.signal("phase", "m2", -5.0, phase="checkpoint", state="begin", generation=None)
    observation = scene.see(30.0, [old])
    progress.update(observation)
    assert progress.step == step
    assert progress.stalled_s(observation) > 0


def test_a_phase_on_a_machine_that_left_the_job_protects_nobody(scene: Any) -> None:
    progress = Progress()
    run(scene, progress, 20)
    scene.count = 3  # m3 is still in the fleet, not in the job
    scene.worker("m3", phase="evaluation")
    observation = scene.see(30.0)
    progress.update(observation)
    assert progress.stalled_s(observation) > 0


def test_an_agent_that_dies_inside_a_phase_does_not_keep_it_open(scene: Any) -> None:
    progress = Progress()
    step = run(scene, progress, 20)
    scene.answer(21, step, phase="checkpoint")
    progress.update(scene.see(21.5, [scene.signal("phase", "m1", 21.0, phase="checkpoint", state="begin", generation=None)]))
    assert progress.phase == "checkpoint"
    run(scene, progress, 30, first=step, from_s=22)
    assert progress.phase == ""
    assert progress.stalled_s(scene.see(40.0)) > 0


def test_phases_told_by_agents_count_where_no_launcher_tells_any(make_scene: Make) -> None:
    scene, progress = make_scene(), Progress()
    step = run(scene, progress, 20)
    for machine in scene.machines:
        scene.views[machine] = scene.views[machine].__class__(machine, 0.2, None)
    begin = scene.signal("phase", "m1", 21.0, phase="evaluation", state="begin", generation=None)
    progress.update(scene.see(21.2, [begin]))
    assert (progress.phase, progress.step) == ("evaluation", step)
    progress.update(scene.see(40.0, [scene.signal("phase", "m1", 39.5, phase="evaluation", state="end", generation=None)]))
    assert progress.phase == ""


def test_a_new_generation_forgets_steps_but_keeps_how_long_a_step_takes(scene: Any) -> None:
    progress = Progress()
    run(scene, progress, 20, step_s=0.25)
    scene.generation, scene.started_s = 2, scene.started_s + 25
    scene.answer(26, None)
    progress.update(scene.see(26.0))
    assert progress.steps_in_generation == 0 and math.isinf(progress.step)
    assert progress.typical_s == pytest.approx(0.25)
    assert not progress.watches(scene.see(60.0))


def test_the_first_step_is_what_the_page_says_also_when_it_is_seen_late(make_scene: Make, start_s: float) -> None:
    scene, progress = make_scene(generation=3), Progress()
    scene.answer(30.0, 40, first_step=31, first_step_time_s=start_s + 21.0)
    progress.update(scene.see(30.2))
    assert progress.first == (31.0, start_s + 21.0)
    assert progress.steps_in_generation == 10


def test_steps_of_an_older_generation_are_not_the_present_ones(make_scene: Make) -> None:
    scene, progress = make_scene(generation=2), Progress()
    scene.answer(5.0, 40, generation=1)
    progress.update(scene.see(5.2))
    assert math.isinf(progress.step)


def test_what_was_called_slow_is_forgotten(scene: Any, start_s: float) -> None:
    progress = Progress()
    step = run(scene, progress, 20, step_s=0.25)
    run(scene, progress, 120, step_s=1.0, first=step, from_s=20)
    progress.forget_slow(start_s + 20.5)
    assert progress.typical_s == pytest.approx(0.25)


def test_a_job_that_is_only_watched_steps_by_telemetry(start_s: float) -> None:
    progress = Progress()
    for tick in range(20):
        values_TMK = np.array([[[2.0 * tick], [2.0 * tick - 1]]])
        window = Window(np.array([start_s + tick]), ("a", "b"), ("steps_total",), values_TMK, np.ones((1, 2), bool))
        progress.update(Observation(start_s + tick, window))
    assert progress.step == 38
    assert progress.typical_s == pytest.approx(0.5)
