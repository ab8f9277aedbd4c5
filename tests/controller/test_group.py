"""Machines that fall ill together go together, or stay together: the whole way from what their launchers say to what is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.captures import CapturesRule
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.stall import StallRule
from minder.model.evidence import CaptureFinding, Suspect, Verdict
from minder.model.observation import Observation, WorkerView
from minder.model.topology import Parallelism
from minder.record.incidents import kinds

PIPELINES = Parallelism(pipeline=2, data=2)
HELD, STALLS_AT = ("m1", "m3"), 12


class Told:
    """The judge's own rules on a job whose m1 and m3, one pipeline, stop running at tick 12. Stacks then accuse one of them alone."""

    def __init__(self, world: Any) -> None:
        tracker = JobTracker()
        rules = [StallRule(tracker, parallelism=PIPELINES), CapturesRule(tracker)]
        self._world, self._tracker, self._judge, self._ticks, self._stopped_s = world, tracker, Judge(rules), 0, 0.0

    def __call__(self, observation: Observation) -> list[Verdict]:
        self._ticks += 1
        if self._ticks < STALLS_AT:
            self._stopped_s = observation.now_s
        fleet = {name: replace(view, workers=self._workers(name, view.workers)) for name, view in observation.fleet.items()}
        sure = Suspect(observation.now_s, "stacks", "machine", ("m1",), "stall", 0.97, self._stopped_s, "evict")
        stacks = (CaptureFinding(observation.now_s, "stacks", (sure,)),) if self._ticks == STALLS_AT + 20 else ()
        seen = replace(observation, fleet=fleet, statements=stacks)
        self._tracker.update(seen)
        return self._judge.judge(seen)[0]

    def _workers(self, machine: str, workers: Sequence[WorkerView]) -> tuple[WorkerView, ...]:
        """Nobody steps any more, and the held ones' own threads do not tick."""
        now_s = self._world.clock.now_s()
        alive_s = self._stopped_s if machine in HELD and self._ticks >= STALLS_AT else now_s
        step = min(worker.step or 0 for worker in workers) if workers else 0
        steps = min(step, 2 * STALLS_AT)
        return tuple(replace(worker, step=steps, step_time_s=self._stopped_s, alive_time_s=alive_s) for worker in workers)


def decisions(world: Any) -> list[tuple[str, tuple[str, ...], str]]:
    return [(item.payload["action"], tuple(item.payload["machines"]), item.payload["reason"]) for item in world.events(kinds.DECISION)]


def run(world: Any) -> Any:
    world.script = Told(world)
    return world.life(STALLS_AT + 40)


def test_both_machines_of_a_pipeline_are_taken_out_in_one_eviction(world: Any) -> None:
    app = run(world)
    assert decisions(world)[0] == ("evict", HELD, "act")
    assert app.state.barred == set(HELD)
    assert app.state.rank_machine == {0: "m0", 1: "s0", 2: "m2", 3: "s1"}


@pytest.mark.parametrize(
    "limit", ["standbys", *(pytest.param(limit, marks=pytest.mark.release) for limit in ("max_machines_per_hour", "breaker_share"))]
)
def test_a_group_larger_than_what_may_be_taken_is_a_page_and_nobody_goes(limit: str, world: Any) -> None:
    """Nor is half of it evicted later, when stacks accuse one of the two alone."""
    if limit == "standbys":
        world.fleet.launchers["s1"].state = "starting"
    else:
        world.policy = replace(world.policy, **{limit: 0.25 if limit == "breaker_share" else 1})
    app = run(world)
    assert decisions(world) == [("page", HELD, "no_standby" if limit == "standbys" else "group_too_large")]
    assert world.events(kinds.INTENT, kinds.BARRED) == [] and world.actuator.executed == []
    assert (app.state.barred, app.state.generation) == (set(), 1)


def test_a_group_is_one_eviction_for_the_budgets(world: Any) -> None:
    world.policy = replace(world.policy, max_evictions_per_job=1, max_evictions_per_hour=1)
    run(world)
    assert decisions(world)[0] == ("evict", HELD, "act")


@pytest.mark.lab
def test_a_group_that_stays_has_not_recovered_as_long_as_the_job_stands(world: Any) -> None:
    """Else its incident would close after three minutes, and half of it be open to a later accusation."""
    world.policy = replace(world.policy, dry_run=True)
    world.script = Told(world)
    world.life(STALLS_AT + 900)
    assert [(item.payload["kind"], tuple(item.payload["machines"])) for item in world.events(kinds.VERDICT)] == [("group", HELD)]


def test_a_group_whose_second_standby_goes_away_in_the_last_moment_stays_whole(world: Any) -> None:
    world.script = Told(world)
    app = world.app()
    app.begin()
    decide = app.controller._stages.policy.decide

    def decide_then_lose_one(*arguments: Any) -> Any:
        found = decide(*arguments)
        if any(item.action == "evict" for item in found):
            world.fleet.launchers["s1"].state = "starting"
        return found

    app.controller._stages.policy.decide = decide_then_lose_one
    world.tick(app, STALLS_AT + 20)
    assert decisions(world) == [("page", HELD, "no_standby")]
    assert world.events(kinds.INTENT, kinds.BARRED) == [] and app.state.barred == set()
    app.close()
