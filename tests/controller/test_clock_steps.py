"""The wall clock is set while a job runs: that is told, nobody is accused for it, and what happens afterwards is found as before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from minder.act.controller.reading.hearing import ClockSteps
from minder.act.controller.reporting.status import read_status
from minder.model.clock import FakeClock
from minder.model.evidence import Signal
from minder.record.incidents import kinds

HOUR_S = 3600.0


@pytest.mark.parametrize("by_s", [-HOUR_S, 20.0, *(pytest.param(other, marks=pytest.mark.release) for other in (HOUR_S, -20.0))])
@pytest.mark.lab
def test_a_clock_that_is_set_is_told_accuses_nobody_and_hides_nothing_afterwards(paper: Callable[..., Any], by_s: float) -> None:
    job = paper()
    assert job.degraded() == set()
    job.clock.set_forward(by_s)
    job.tick(45)
    assert job.told(kinds.VERDICT, kinds.DECISION, kinds.INTENT) == []
    (told,) = job.told(kinds.DEGRADED)
    assert told.payload["what"] == "clock" and f"{'forward' if by_s > 0 else 'back'} by {abs(by_s):.0f} s" in told.payload["detail"]
    assert job.degraded() == {"clock"} and (read_status(job.folder / "status.json") or {})["errors"] == {"clock": 1}
    job.hit("m2", "slow")
    job.tick(90)
    assert [event.payload["machine"] for event in job.told(kinds.BARRED)] == ["m2"]
    assert job.app.state.phase == "running" and job.app.state.generation == 2 and job.degraded() == set()


@pytest.mark.lab
def test_a_job_that_stood_still_before_the_step_has_stood_no_longer_after_it(paper: Callable[..., Any]) -> None:
    """A minute of silence would be a stall: the step is none, and the stall that comes is one."""
    job = paper()
    job.clock.set_forward(HOUR_S)
    now_s = job.clock.now_s()
    job.hit("m1", "hang")
    job.tick(3)
    assert job.told(kinds.VERDICT) == []
    job.tick(60)
    (verdict, *_) = job.told(kinds.VERDICT)
    assert verdict.payload["since_s"] >= now_s - 5.0


def test_what_is_heard_around_the_step_is_dated_by_the_new_clock() -> None:
    clock = FakeClock(1000.0)
    steps = ClockSteps(clock)
    clock.sleep(1.0)
    assert steps.look() == 0.0 and not steps.settling
    clock.set_forward(-500.0)
    assert steps.look() == -500.0 and steps.settling
    moved = steps.move([Signal(1000.5, "exit", "m0"), Signal(501.0, "exit", "m1")], -500.0)
    assert [signal.time_s for signal in moved] == [500.5, 501.0]
    clock.sleep(60.0)
    assert steps.look() == 0.0 and not steps.settling
