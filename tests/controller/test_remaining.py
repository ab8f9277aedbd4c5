"""What is left of a job, in seconds: from its declared end and the steps that it made."""

from __future__ import annotations

import pytest

from minder.act.controller.orders.job_work import remaining_s
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.observation import MachineView, Observation, WorkerView


def after(*times_s: float) -> JobTracker:
    """One rank made its n-th step at the n-th of these times."""
    tracker = JobTracker()
    for step, time_s in enumerate(times_s, start=1):
        worker = WorkerView(0, 17, 0, "running", 1, step=step, step_time_s=time_s, first_step=1, first_step_time_s=times_s[0])
        tracker.update(Observation(time_s, None, (), None, {"m0": MachineView("m0", 0.1, 0.1, (worker,))}))
    return tracker


STEADY = tuple(2.0 * step for step in range(1, 51))  # the 50th step at 100 s


def test_steps_that_are_left_take_as_long_as_the_median_of_those_seen() -> None:
    assert remaining_s(after(*STEADY), 80, now_s=100.0) == pytest.approx(30 * 2.0)
    assert remaining_s(after(*STEADY), 80, now_s=500.0) == pytest.approx(30 * 400.0), "it stands: the open step counts with its age"
    assert remaining_s(after(*STEADY), 50, now_s=100.0) == 0.0


def test_a_job_that_was_slowed_down_has_longer_to_go() -> None:
    slowed = (*STEADY, *(100.0 + 4.0 * step for step in range(1, 6)))
    assert remaining_s(after(*slowed), 80, now_s=120.0) == pytest.approx(25 * 4.0)
    hurried = (*STEADY, *(100.0 + 0.5 * step for step in range(1, 13)))
    assert remaining_s(after(*hurried), 80, now_s=106.0) == pytest.approx(18 * 2.0), "a few quick steps promise nothing"


def test_what_cannot_be_known_is_none() -> None:
    assert remaining_s(after(*STEADY), None, now_s=100.0) is None
    assert remaining_s(after(*STEADY), 40, now_s=100.0) is None, "the job has gone beyond the declared end: the number is wrong"
    assert remaining_s(after(*STEADY[:4]), 80, now_s=8.0) is None
    assert remaining_s(JobTracker(), 80, now_s=8.0) is None
