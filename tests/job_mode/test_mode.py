"""The mode of a job: a distribution that sums to 1, says since when and from what, and is equal where nothing is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.job_mode import MODES, JobMode
from minder.model.observation import JobView, Observation
from minder.model.telemetry import Window

TCP, TENSOR, POWER = "job_tcp_bytes_per_second", "gpu_tensor_activity_ratio", "gpu_power_draw_watts"
MACHINES = ("m0", "m1", "m2")
Make = Callable[..., Any]


def stepping(scene: Any, tracker: JobTracker, until_s: int, steps_per_s: float = 2.0, from_s: int = 0, first: int = 0) -> JobMode:
    for at_s in range(from_s + 1, until_s + 1):
        scene.answer(at_s, first + int(steps_per_s * (at_s - from_s)) + 1)
        tracker.update(scene.see(at_s + 0.1))
    assert tracker.mode is not None
    return tracker.mode


def by_telemetry(values: dict[str, float], seconds: range, tracker: JobTracker, phase: str = "running") -> JobMode:
    """Telemetry alone, a row a second."""
    job = JobView("j", 1, phase, MACHINES, (), (), dict(enumerate(MACHINES)), -math.inf, 0.0)  # type: ignore[arg-type]
    for now_s in map(float, seconds):
        values_TMK = np.broadcast_to(np.array([*values.values()]), (1, len(MACHINES), len(values)))
        window = Window(np.array([now_s]), MACHINES, tuple(values), values_TMK, np.ones((1, len(MACHINES)), bool))
        seen = tracker.update(Observation(now_s, window, job=job))
        assert seen.window is not None and seen.window.mode is seen.mode is tracker.mode
    assert tracker.mode is not None
    return tracker.mode


def test_a_job_that_steps_says_so_by_its_step_counter(scene: Any, start_s: float) -> None:
    mode = stepping(scene, JobTracker(), 60)
    assert (mode.likeliest, mode.source) == ("stepping", "step counter")
    assert mode.probabilities["stepping"] > 0.9 and math.fsum(mode.probabilities.values()) == pytest.approx(1.0)
    assert start_s < mode.since_s < start_s + 30.0


def test_a_stall_grows_likely_with_its_silence_and_dates_from_the_last_step(scene: Any, start_s: float) -> None:
    tracker = JobTracker()
    stepping(scene, tracker, 30)
    shares = []
    for at_s in range(31, 50):
        tracker.update(scene.see(at_s))
        assert tracker.mode is not None
        shares.append(tracker.mode.probabilities["stalled"])
    assert shares == sorted(shares) and shares[0] < 0.1 and shares[-1] > 0.95
    assert tracker.mode is not None and (tracker.mode.likeliest, tracker.mode.since_s) == ("stalled", start_s + 30)


def test_long_steps_are_no_stall_before_it_is_known_how_long_they_are(scene: Any) -> None:
    tracker, seen = JobTracker(), set()
    for at_s in range(1, 60):
        scene.answer(at_s // 10 * 10, at_s // 10 + 1)
        mode = tracker.update(scene.see(at_s + 0.1)).mode
        seen |= {mode.likeliest} if mode is not None and tracker.steps.reads_steps else set()
    assert seen == {"stepping"}


def test_slow_steps_are_a_mode_of_their_own(scene: Any) -> None:
    tracker = JobTracker()
    stepping(scene, tracker, 60)
    mode = stepping(scene, tracker, 90, steps_per_s=0.5, from_s=60, first=120)
    assert (mode.likeliest, mode.source) == ("slow", "step counter")


def test_a_declared_phase_is_idle_until_it_has_lasted_an_hour(scene: Any) -> None:
    tracker = JobTracker()
    stepping(scene, tracker, 30)
    scene.answer(30, 61, phase="checkpoint")
    modes = [tracker.update(scene.see(float(at_s))).mode for at_s in (31, 100, 5000)]
    assert [(mode.likeliest, mode.source) for mode in modes if mode] == [
        ("idle_phase", "phase event"), ("idle_phase", "phase event"), ("stalled", "phase event")
    ]  # fmt: skip


def test_the_first_start_and_a_restart_are_distinguished(make_scene: Make) -> None:
    tracker, scene = JobTracker(), make_scene(phase="starting")
    first = tracker.update(scene.see(1.0)).mode
    assert first is not None and (first.likeliest, first.source) == ("start", "phase event")
    scene.phase = "running"
    stepping(scene, tracker, 30)
    scene.phase = "recovering"
    assert [mode.likeliest for at_s in (31.0, 32.0) if (mode := tracker.update(scene.see(at_s)).mode)] == ["restarting"] * 2
    scene.generation, scene.phase = 2, "starting"
    again = tracker.update(scene.see(40.0)).mode
    assert again is not None and again.likeliest == "restarting"


def test_where_most_machines_are_dark_it_is_an_outage_and_no_stall(scene: Any) -> None:
    tracker = JobTracker()
    stepping(scene, tracker, 30)
    for machine in ("m0", "m1", "m2"):
        scene.silence(machine)
    mode = tracker.update(scene.see(45.0)).mode
    assert mode is not None and (mode.likeliest, mode.source) == ("outage", "none")


def test_without_steps_activity_decides(scene: Any) -> None:
    tracker = JobTracker()
    assert by_telemetry({TCP: 1e6}, range(10), tracker).likeliest == "start"
    assert by_telemetry({TCP: 1e6}, range(10, 90), tracker).likeliest == "stepping"
    mode = by_telemetry({TCP: 0.0}, range(90, 190), tracker)
    assert (mode.likeliest, mode.source) == ("stalled", "activity")
    assert mode.since_s == pytest.approx(95.0, abs=15.0)


def test_without_anything_that_shows_work_nothing_is_known_and_all_modes_are_alike() -> None:
    mode = by_telemetry({POWER: 400.0}, range(60), JobTracker())
    assert (mode.likeliest, mode.source) == (None, "none")
    assert set(mode.probabilities.values()) == {1.0 / len(MODES)}


def test_a_job_that_is_over_does_nothing(scene: Any) -> None:
    tracker = JobTracker()
    stepping(scene, tracker, 30)
    scene.phase = "finished"
    assert tracker.update(scene.see(31.0)).mode is None and tracker.mode is None


def test_a_clock_that_is_set_moves_the_mode_with_it(scene: Any) -> None:
    tracker = JobTracker()
    since_s = stepping(scene, tracker, 60).since_s
    tracker.move(3600.0)
    scene.answer(3661, 123)
    mode = tracker.update(scene.see(3661.2)).mode
    assert mode is not None and (mode.likeliest, mode.since_s) == ("stepping", since_s + 3600.0)


def test_what_is_no_distribution_is_refused() -> None:
    even = dict.fromkeys(MODES, 1.0 / len(MODES))
    assert JobMode(even, 0.0).likeliest is None
    for wrong in ({**even, "slow": 0.9}, {"slow": 1.0}, {**dict.fromkeys(MODES, 0.0), "slow": 2.0, "start": -1.0}):
        with pytest.raises(ValueError, match="with the sum 1"):
            replace(JobMode(even, 0.0), probabilities=wrong)  # type: ignore[arg-type]
