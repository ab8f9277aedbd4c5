"""The controller is killed and started again while real processes run: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.root, pytest.mark.timeout(420)]


def test_the_job_never_stops_for_it_and_a_crash_afterwards_is_handled(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama(steps=120, at_step=40)
    run.start()
    run.reach(15)
    run.stage.kill_controller()
    before = run.events(kinds.GENERATION_STARTED, kinds.FIRST_STEP)
    time.sleep(3.0)
    run.start()
    run.until(lambda: run.events(kinds.CONTROLLER_STARTED))
    run.reach(40)
    assert run.events(kinds.GENERATION_STARTED, kinds.FIRST_STEP) == before
    run.stage.inject("xid", 2)
    assert run.finish() == "finished"
    assert run.evicted() == [run.name(2)]
    assert [placed[2] for placed in run.generations()] == [run.name(2), run.name(4)]
    assert len(run.events(kinds.JOB_REGISTERED)) == 1
    assert same_losses(run)


@pytest.mark.parametrize(
    "kind", [kinds.INTENT, *(pytest.param(kind, marks=pytest.mark.release) for kind in (kinds.RESULT, kinds.GENERATION_STARTED))]
)
def test_an_eviction_that_was_begun_is_finished_once(drama: Callable[..., Any], same_losses: Any, kind: str) -> None:
    run = drama()
    run.start()
    run.reach(12)
    run.stage.inject("xid", 1)
    run.kill_after(kind, 2 if kind == kinds.GENERATION_STARTED else 1)
    run.start()
    assert run.finish() == "finished"
    assert run.evicted() == [run.name(1)]
    assert [placed[1] for placed in run.generations()] == [run.name(1), run.name(4)]
    assert len(run.events(kinds.INTENT)) == 1 and len(run.events(kinds.RESULT)) == 1
    assert same_losses(run)


@pytest.mark.release
def test_a_machine_that_is_lost_while_no_controller_runs_is_found_by_the_next_one(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama()
    run.start()
    run.reach(12)
    run.stage.kill_controller()
    run.stage.inject("machine-lost", 1)
    time.sleep(5.0)
    run.start()
    assert run.finish() == "finished"
    assert run.evicted() == [run.name(1)]
    assert same_losses(run)
