"""A climb through several rungs, by a controller that may die after any write: what was climbed is in the ledger, and nothing is climbed
twice. Two incidents of one job are one plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Failure, Verdict
from minder.record.incidents import kinds
from minder.record.incidents.ascent import ASCENT_KINDS, fold_ascent
from minder.wire.codec import from_json

TICKS = 10
CLIMB = ["reattempt", "trial"]
TURNS = (kinds.VERDICT, kinds.DECISION, kinds.INTENT, kinds.GENERATION_STARTED, kinds.RESULT)


def crash(world: Any, observation: Any, machine: str = "m1", rank: int = 1) -> Verdict:
    """An unknown failure of that rank, the same for every controller that sees it."""
    begun_s = observation.job.generation_start_s
    failure = Failure(begun_s, machine, (rank,), "crash", text="ended by SIGKILL")
    return replace(world.accuse(kind="job"), since_s=begun_s, sources=("crash",), failures=(failure,))


def crashes_twice(world: Any) -> Callable[[Any], list[Any]]:
    def script(observation: Any) -> list[Any]:
        fails = observation.job.phase == "running" and observation.job.rank_machine.get(1) == "m1"
        return [crash(world, observation)] if fails else []

    return script


def acted(world: Any) -> list[Decision]:
    return [from_json(Decision, event.payload["decision"]) for event in world.events(kinds.INTENT)]


def test_killed_after_any_write_of_a_climb_the_next_controller_goes_on_where_it_stopped(new_world: Callable[[], Any]) -> None:
    whole = new_world()
    whole.script = crashes_twice(whole)
    whole.life(TICKS)
    written = [event.kind for event in whole.events()]
    assert [item.rung for item in acted(whole)] == CLIMB
    turns = [index for index, kind in enumerate(written, 1) if kind in TURNS][-4:]  # every other write: bench/schedules.py
    for die_at in turns:
        world = new_world()
        world.script = crashes_twice(world)
        world.life(TICKS, die_at)
        app = world.life(TICKS)
        at = f"killed after event {die_at}: {[event.kind for event in world.events()]}"
        found = acted(world)
        assert [item.rung for item in found] == CLIMB, at
        assert (app.state.generation, app.state.rank_machine[1], app.state.barred) == (3, "s0", set()), at
        assert [item.operation_id for item in found[1].climbed] == [found[0].operation_id], at
        with world.ledger() as ledger:
            climbs = ledger.history("llm").climbs
            assert [(item.rung, item.outcome) for item in climbs] == [("reattempt", "came back"), ("trial", "done")], at
            assert ledger.open_operations("llm") == [], at


def test_what_was_passed_over_and_what_came_of_it_is_explained_by_the_incident(world: Any) -> None:
    world.script = crashes_twice(world)
    world.life(TICKS)
    incidents = list(dict.fromkeys(event.incident for event in world.events(kinds.DECISION)))
    with world.ledger() as ledger:
        steps = [step for name in incidents for step in fold_ascent(ledger.events(incident=name, kinds=ASCENT_KINDS))]
    found = [(step.rung, step.state, step.reason) for step in steps]
    assert ("probes", "passed over", "not_available") in found and ("diagnose", "passed over", "not_available") in found
    assert [step.rung for step in steps if step.state == "climbed"] == CLIMB
    assert all("the job stepped again" in step.outcome for step in steps if step.state == "climbed")


def test_two_incidents_of_one_job_are_one_plan(world: Any) -> None:
    """A machine's own fault, and an unknown failure of another machine at the same moment: one eviction, one generation."""

    def script(observation: Any) -> list[Any]:
        first = observation.job.phase == "running" and observation.job.generation == 1
        return [crash(world, observation, "m2", 2), world.accuse("m1", sources=("signals",))] if first else []

    world.script = script
    app = world.life(TICKS)
    (decision,) = acted(world)
    assert (decision.action, decision.machines, app.state.generation) == ("evict", ("m1",), 2)
    noted = {event.incident for event in world.events(kinds.DECISION) if event.operation_id == decision.operation_id}
    assert len(noted) == 2, "both incidents say what was done"


def test_a_page_for_want_of_a_standby_names_the_one_that_is_to_be_tested(paper: Callable[..., Any]) -> None:
    world = paper()
    for number in range(2):
        world.ledger.intend(f"evict-{number}", {"action": "evict", "machines": ["s0"]}, job="vision")
        world.ledger.complete(f"evict-{number}", ActionResult(f"evict-{number}", world.clock.now_s(), "done"))
    world.tick(2)
    app = world.app
    assert app.controller.standbys() == ["s1"]
    context = app.controller._stages.context(app.state, app.controller.standbys(), world.clock.now_s())
    assert context.standbys_out == {"s0": "s0 was evicted 2 times within 7 days and has passed no test since"}
