"""That no step is read is said within a minute, with a remedy, and taken back with the first step."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from minder.act.controller.reading.sight import StepSight
from minder.model.observation import JobView, MachineView, Observation, WorkerView
from minder.model.telemetry import Sample


def seen(state: str = "running", generation: int = 1, worker_generation: int | None = None) -> Observation:
    worker = WorkerView(0, 1, 0, state, generation if worker_generation is None else worker_generation)  # type: ignore[arg-type]
    job = JobView("j", generation, "starting", ("m1",), (), (), {0: "m1"}, 0.0, 0.0)
    return Observation(0.0, job=job, fleet={"m1": MachineView("m1", 0.1, 0.1, (worker,))})


def lines(count: float) -> list[Sample]:
    return [Sample(0.0, "m1", {"job_log_lines_total": count})]


def told(sight: StepSight, until_s: int, observation: Observation, since_s: int = 0, samples: list[Sample] | None = None) -> list[str]:
    return [said for second in range(since_s, until_s) if (said := sight.look(float(second), observation, -math.inf, samples or []))]


def test_it_is_said_once_within_a_minute_and_taken_back_with_the_first_step() -> None:
    sight = StepSight(watched=False)
    (said,) = told(sight, 60, seen(), samples=lines(12))
    assert "12 lines" in said and "--step-pattern" in said and "minder.heartbeat" in said
    assert sight.trouble == said
    assert told(sight, 200, seen(), since_s=60) == []
    assert sight.look(200.0, seen(), 7.0, []) == "steps are read: step 7"
    assert sight.trouble == "" and sight.look(201.0, seen(), 8.0, []) == ""


def test_a_job_that_steps_says_nothing() -> None:
    sight = StepSight(watched=False)
    assert [sight.look(float(second), seen(), float(second), []) for second in range(100)] == [""] * 100


def test_ranks_that_wait_have_no_steps_to_show() -> None:
    sight = StepSight(watched=False)
    assert told(sight, 300, seen("waiting")) == []
    assert told(sight, 300, seen(generation=2, worker_generation=1)) == []


@pytest.mark.parametrize("phase", ["suspended", "diagnosing", "replaying", "recovering"])
def test_a_job_that_is_held_has_no_steps_to_show(phase: str) -> None:
    sight = StepSight(watched=False)
    assert told(sight, 20, seen()) == []
    held = seen()
    assert held.job is not None
    held = replace(held, job=replace(held.job, phase=phase))  # type: ignore[arg-type]
    assert told(sight, 300, held, since_s=20) == []


def test_each_generation_has_its_own_time() -> None:
    sight = StepSight(watched=False)
    assert len(told(sight, 60, seen())) == 1
    assert told(sight, 80, seen(generation=2), since_s=60) == []
    assert len(told(sight, 120, seen(generation=2), since_s=80)) == 1


def test_a_watched_job_without_a_log_is_told_to_name_one() -> None:
    (said,) = told(StepSight(watched=True), 60, seen())
    assert "no log is followed" in said and "minder agent --log" in said
