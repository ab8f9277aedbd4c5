"""Mycroft's trigger on a job made by hand: when it looks closer, and when it stays quiet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.trigger import TriggerRule
from minder.model.observation import RuleResult
from minder.model.telemetry import Window

Make = Callable[..., Any]
QUIET = RuleResult()


class Job:
    """A job that takes `rate` steps a second and moves `traffic` bytes a second on each machine, second by second."""

    def __init__(self, scene: Any, metric: str = "tcp_throughput_bytes_per_second") -> None:
        self.scene, self.metric = scene, metric
        self.tracker = JobTracker()
        self.rule = TriggerRule(self.tracker)
        self.now_s, self.steps = 0.0, 0.0
        self.results: list[RuleResult] = []

    def run(self, seconds: int, rate: float = 2.0, traffic: float | None = None, phase: str | None = None) -> list[RuleResult]:
        """One result for each second."""
        begin = len(self.results)
        for _ in range(seconds):
            self.now_s += 1.0
            before, self.steps = int(self.steps), self.steps + rate
            if int(self.steps) > before:
                self.scene.answer(self.now_s, int(self.steps), phase=phase)
            elif phase is not None:
                for machine in self.scene.machines:
                    self.scene.worker(machine, phase=phase)
            observation = self.scene.see(self.now_s + 0.1)
            if traffic is not None:
                values = np.full((1, len(self.scene.machines), 1), traffic)
                times = np.array([observation.now_s])
                present = np.ones((1, len(self.scene.machines)), dtype=bool)
                window = Window(times, self.scene.machines, (self.metric,), values, present)
                observation = replace(observation, window=window)
            self.tracker.update(observation)
            self.results.append(self.rule.observe(observation))
        return self.results[begin:]


def test_a_steady_job_alarms_nobody(scene: Any) -> None:
    job = Job(scene)
    assert set(map(repr, job.run(60, traffic=100.0))) == {repr(QUIET)}
    assert job.rule.alarm == ""


def test_steps_twice_as_far_apart_open_the_sampling_and_name_nobody(scene: Any) -> None:
    job = Job(scene)
    job.run(40)
    slow = job.run(20, rate=0.7)
    assert slow[0] == QUIET and slow[-1] == RuleResult((), frozenset({"flows"}))
    assert job.rule.alarm.startswith("straggler alarm") and "4 of 4 sampled ranks" in job.rule.alarm


@pytest.mark.parametrize("metric", ["tcp_throughput_bytes_per_second", "rdma_throughput_bytes_per_second"])
def test_half_the_traffic_at_the_same_pace_is_an_alarm_and_a_fifth_less_is_none(scene: Any, metric: str) -> None:
    job = Job(scene, metric)
    job.run(40, traffic=1000.0)
    assert job.run(25, traffic=800.0)[-1] == QUIET
    assert job.run(25, traffic=300.0)[-1].requests == {"flows"}


def test_no_step_in_the_window_is_a_failure_that_is_looked_at_for_a_minute(scene: Any) -> None:
    job = Job(scene)
    job.run(40)
    stands = job.run(120, rate=0.0)
    asked = [index for index, result in enumerate(stands) if result.requests]
    assert 8 <= asked[0] <= 12 and 59 <= len(asked) <= 62
    assert not any(result.suspects for result in stands)
    assert job.rule.alarm.startswith("failure alarm")


def test_a_slow_decline_is_seen_against_the_normal_of_a_whole_window_ago(scene: Any) -> None:
    """Were the normal overwritten at every tick, it would follow the fall."""
    job = Job(scene)
    job.run(40, traffic=1000.0)
    assert any(result.requests for result in job.run(20, traffic=250.0))


@pytest.mark.parametrize("phase", ["checkpoint", "evaluation", "compile"])
def test_a_declared_phase_and_what_follows_it_at_once_are_quiet(scene: Any, phase: str) -> None:
    job = Job(scene)
    job.run(40)
    assert set(map(repr, job.run(30, rate=0.0, phase=phase))) == {repr(QUIET)}
    assert set(map(repr, job.run(30))) == {repr(QUIET)}


def test_a_restart_begins_anew(make_scene: Make) -> None:
    job = Job(make_scene())
    job.run(40, rate=4.0)
    job.scene.generation, job.scene.started_s = 2, job.scene.see(job.now_s).now_s
    job.steps = 0.0
    assert set(map(repr, job.run(60, rate=1.0))) == {repr(QUIET)}, "another pace is no alarm in another generation"


def test_who_is_not_heard_from_is_not_counted(scene: Any) -> None:
    job = Job(scene)
    job.run(40)
    job.scene.silence("m0")
    answer = job.scene.answer

    def without_m0(*given: Any, **more: Any) -> None:
        kept = job.scene.views["m0"]
        answer(*given, **more)
        job.scene.views["m0"] = kept

    job.scene.answer = without_m0
    assert set(map(repr, job.run(30))) == {repr(QUIET)}
    job.run(20, rate=0.7)
    assert "3 of 3 sampled ranks" in job.rule.alarm


def test_a_job_that_has_changed_its_ways_is_learned_anew(scene: Any) -> None:
    job = Job(scene)
    job.run(40, traffic=1000.0)
    job.run(80, traffic=200.0)
    assert set(map(repr, job.run(30, traffic=200.0))) == {repr(QUIET)} and job.rule.alarm == ""


def test_ten_ranks_at_most_are_sampled(make_scene: Make) -> None:
    job = Job(make_scene(count=16))
    job.run(40)
    job.run(20, rate=0.7)
    assert "10 of 10 sampled ranks" in job.rule.alarm


def test_a_job_that_saves_after_every_few_steps_is_watched_in_between(scene: Any) -> None:
    job = Job(scene)
    for _ in range(12):
        assert job.run(6)[-1] == job.run(1, rate=0.0, phase="checkpoint")[-1] == QUIET
    for _ in range(6):
        job.run(6, rate=0.7)
        job.run(1, rate=0.0, phase="checkpoint")
    assert job.run(4, rate=0.7)[-1].requests == {"flows"}


class Inspected(Job):
    """A job whose machines tell what NCCL completes: so many operations a second, each of 1,000 bytes, on each of `told` machines."""

    def __init__(self, scene: Any, told: int = 4) -> None:
        super().__init__(scene)
        self.told, self.operations = told, 0.0

    def spin(self, seconds: int, operations: float, step_every: int = 30, phase: str | None = None) -> list[RuleResult]:
        begin = len(self.results)
        for _ in range(seconds):
            self.now_s += 1.0
            self.operations += operations
            if int(self.now_s) % step_every == 0 and phase is None:
                self.steps += 1
                self.scene.answer(self.now_s, int(self.steps))
            observation = self.scene.see(self.now_s + 0.1)
            values = np.full((1, len(self.scene.machines), 2), np.nan)
            values[0, : self.told] = self.operations, 1000.0 * operations
            metrics = ("nccl_operations_total", "nccl_throughput_bytes_per_second")
            present = np.ones((1, len(self.scene.machines)), dtype=bool)
            window = Window(np.array([observation.now_s]), self.scene.machines, metrics, values, present)
            observation = replace(observation, window=window)
            self.tracker.update(observation)
            self.results.append(self.rule.observe(observation))
        return self.results[begin:]


def test_operations_of_nccl_alarm_long_before_a_step_is_missed(scene: Any) -> None:
    """A step takes 30 s: by steps, nothing could be said for a minute and a half."""
    job = Inspected(scene)
    assert set(map(repr, job.spin(180, 50.0))) == {repr(QUIET)}
    slow = job.spin(15, 20.0)
    assert slow[-1] == RuleResult((), frozenset({"flows"}))
    assert job.rule.alarm.startswith("straggler alarm: NCCL operations") and "4 of 4" in job.rule.alarm


def test_no_operation_for_ten_seconds_is_a_failure_whatever_the_steps(scene: Any) -> None:
    job = Inspected(scene)
    job.spin(180, 50.0)
    stands = job.spin(14, 0.0, step_every=1000)
    assert stands[2] == QUIET and stands[-1].requests == {"flows"}
    assert job.rule.alarm.startswith("failure alarm: no NCCL operation completed in 10 s")


def test_records_that_end_while_steps_go_on_are_a_full_disk_and_no_alarm(scene: Any) -> None:
    job = Inspected(scene)
    job.spin(60, 50.0, step_every=2)
    assert set(map(repr, job.spin(60, 0.0, step_every=2))) == {repr(QUIET)}


def test_a_job_that_talks_once_in_a_while_is_given_its_own_pauses(scene: Any) -> None:
    """Gradients are reduced every 12 s, a hundred operations at once, and nothing in between."""
    job = Inspected(scene)
    for _ in range(20):
        job.spin(11, 0.0, step_every=12)
        job.spin(1, 100.0, step_every=12)
    assert set(map(repr, job.results)) == {repr(QUIET)}
    job.spin(50, 0.0, step_every=1000)
    assert job.rule.alarm.startswith("failure alarm: no NCCL operation completed in 36 s")


def test_a_phase_stops_the_clock_for_operations_too(scene: Any) -> None:
    job = Inspected(scene)
    job.spin(180, 50.0)
    for machine in scene.machines:
        scene.worker(machine, phase="checkpoint")
    assert set(map(repr, job.spin(60, 0.0, phase="checkpoint"))) == {repr(QUIET)}


def test_machines_without_the_inspector_are_judged_by_their_steps(scene: Any) -> None:
    job = Inspected(scene, told=1)
    job.spin(40, 50.0, step_every=2)
    job.spin(40, 50.0, step_every=1000)
    assert job.rule.alarm.startswith("failure alarm: no step completed") and "3 of 4" in job.rule.alarm
