"""A controller that is killed at any moment and started again: everything is finished, once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from minder.act.controller.recover import Recovery
from minder.act.controller.state import fold_job
from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

TICKS = 8


def evict_m1(world: Any) -> Callable[[Any], list[Any]]:
    def script(observation: Any) -> list[Any]:
        running = observation.job.phase == "running" and "m1" in observation.job.machines
        return [world.accuse("m1")] if running else []

    return script


def restart_once(world: Any) -> Callable[[Any], list[Any]]:
    def script(observation: Any) -> list[Any]:
        first = observation.job.phase == "running" and observation.job.generation == 1
        return [world.accuse(kind="job")] if first else []

    return script


SCRIPTS = {"eviction": evict_m1, "restart in place": restart_once}


@pytest.mark.parametrize("what", SCRIPTS)
@pytest.mark.lab
def test_killed_after_any_event_and_started_again_everything_happens_once(new_world: Callable[[], Any], what: str) -> None:
    whole = new_world()
    whole.script = SCRIPTS[what](whole)
    whole.life(TICKS)
    count = len(whole.events())
    assert count > 10
    for die_at in range(1, count + 1):
        world = new_world()
        world.script = SCRIPTS[what](world)
        world.life(TICKS, die_at)
        assert len(world.events()) == die_at
        app = world.life(TICKS)
        check_outcome(world, app, what, die_at)


def check_outcome(world: Any, app: Any, what: str, die_at: int) -> None:
    at = f"killed after event {die_at}: {[event.kind for event in world.events()]}"
    expected = {"m1"} if what == "eviction" else set()
    place = "s0" if what == "eviction" else "m1"
    assert (app.state.phase, app.state.generation, app.state.barred) == ("running", 2, expected), at
    assert app.state.rank_machine == {0: "m0", 1: place, 2: "m2", 3: "m3"}, at
    assert len(world.events(kinds.INTENT)) == 1 and len(world.events(kinds.RESULT)) == 1, at
    started = [event.operation_id for event in world.events(kinds.GENERATION_STARTED)]
    assert len(started) == len(set(started)) == 2, at
    assert len({event.operation_id for event in world.events(kinds.BARRED)}) == len(expected), at
    assert len(set(world.actuator.executed)) == len(expected), at
    for name, launcher in world.fleet.launchers.items():
        generations = [generation for _, generation in launcher.starts]
        assert generations == sorted(set(generations)), f"{name} started {launcher.starts}; {at}"
    with world.ledger() as ledger:
        assert ledger.open_operations("llm") == [], at


def test_killed_twice_in_the_middle_it_still_happens_once(new_world: Callable[[], Any]) -> None:
    whole = new_world()
    whole.script = evict_m1(whole)
    whole.life(TICKS)
    intent = next(index for index, event in enumerate(whole.events(), 1) if event.kind == kinds.INTENT)
    for second in range(1, 8):
        world = new_world()
        world.script = evict_m1(world)
        world.life(TICKS, intent)
        world.life(TICKS, second)
        app = world.life(TICKS)
        check_outcome(world, app, "eviction", intent)


def test_a_running_job_is_taken_up_without_touching_it(world: Any) -> None:
    world.life(4)
    starts = {name: list(item.starts) for name, item in world.fleet.launchers.items()}
    app = world.life(4)
    assert (app.state.phase, app.state.generation, app.state.last_step) == ("running", 1, 16)
    assert {name: list(item.starts) for name, item in world.fleet.launchers.items()} == starts
    assert len(world.events(kinds.JOB_REGISTERED)) == 1 and len(world.events(kinds.CONTROLLER_STARTED)) == 1


def test_a_controller_that_was_started_again_reports_the_same_checkpoint(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two the generation saved newer checkpoints: it did not resume from those."""
    saved = iter([30])
    monkeypatch.setattr(Recovery, "_newest_checkpoint", lambda self, update, skipped: next(saved, 51))
    app = world.app()
    app.begin()  # and dies before it sees a step
    app.close()
    again = world.life(3)
    (first,) = world.events(kinds.FIRST_STEP)
    assert again.state.resumed_from == first.payload["resumed_from"] == 30


def test_a_new_run_counts_generations_from_1_and_knows_no_step_of_the_old_one() -> None:
    placed = {"generation": 4, "rank_machine": {"0": "a"}, "last_step": 17, "resumed_from": 16}
    events = [
        event(1, kinds.JOB_REGISTERED, {"machines": ["a"]}),
        event(2, kinds.GENERATION_STARTED, placed, operation_id="x"),
        event(3, kinds.JOB_ENDED, {"outcome": "finished"}),
    ]
    assert fold_job("llm", events).generation == 4
    state = fold_job("llm", [*events, event(4, kinds.JOB_REGISTERED, {"machines": ["a"]})])
    assert (state.run, state.generation, state.resumed_from, state.first_step_seen) == (2, 0, None, False)
    assert state.last_step == -math.inf and not state.is_under_way


@pytest.mark.parametrize("launchers", ["new", "the old ones"])
def test_a_fresh_run_starts_at_generation_1_unless_its_launchers_remember_more(world: Any, launchers: str) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    app.ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm")
    app.close()
    for launcher in world.fleet.launchers.values():
        launcher.state = "waiting"
        launcher.generation = launcher.generation if launchers == "the old ones" else 0
    again = world.life(3)
    assert (again.state.run, again.state.generation) == (2, 1 if launchers == "new" else 2)


def test_a_second_run_killed_right_after_it_was_registered_is_begun_again(world: Any) -> None:
    """The ledger then knows a generation of the first run and no ranks: there is nothing to take up."""
    app = world.app()
    app.begin()
    world.tick(app, 2)
    app.ledger.append(kinds.JOB_ENDED, {"outcome": "finished"}, job="llm")
    app.ledger.append(kinds.JOB_REGISTERED, {"machines": [], "standbys": []}, job="llm")
    app.close()
    for launcher in world.fleet.launchers.values():
        launcher.state = "waiting"
    again = world.life(3)
    assert (again.state.generation, again.state.phase) == (2, "running")


def test_a_standby_that_does_not_start_after_a_restart_of_the_controller_is_replaced_too(world: Any) -> None:
    world.script = evict_m1(world)
    whole = world.app()
    whole.begin()
    world.tick(whole, 1)
    intent = len(world.events()) + 3  # verdict, decision, intent
    whole.close()
    world.life(TICKS, intent - len(world.events()) + 1)
    assert world.events()[-1].kind == kinds.INTENT
    world.fleet.launchers["s0"].silent = True
    app = world.life(TICKS)
    assert app.state.rank_machine[1] == "s1" and app.state.barred == {"m1", "s0"}
    assert app.state.phase == "running"


def event(number: int, kind: str, payload: dict[str, Any] | None = None, operation_id: str | None = None) -> LedgerEvent:
    return LedgerEvent(number, float(number), kind, "llm", None, operation_id, payload or {})


def test_the_state_follows_the_events() -> None:
    placed = {"generation": 4, "rank_machine": {"0": "a", "1": "b"}, "last_step": 17, "resumed_from": 16}
    events = [
        event(1, kinds.JOB_REGISTERED),
        event(2, kinds.GENERATION_STARTED, placed, "evict-1"),
        event(3, kinds.BARRED, {"machine": "x"}),
        event(4, kinds.FIRST_STEP, {"generation": 3}),
    ]
    state = fold_job("llm", events)
    assert (state.generation, state.phase, state.operation_id, state.last_step) == (4, "starting", "evict-1", 17.0)
    assert state.rank_machine == {0: "a", 1: "b"} and state.barred == {"x"} and state.resumed_from == 16
    running = fold_job("llm", [*events, event(5, kinds.FIRST_STEP, {"generation": 4})])
    assert running.phase == "running" and running.first_step_seen
    back = fold_job("llm", [*events, event(5, kinds.UNBARRED, {"machine": "x"})])
    assert back.barred == set()
    ended = fold_job("llm", [*events, event(5, kinds.JOB_ENDED, {"outcome": "failed"})])
    assert ended.phase == "failed" and ended.rank_machine == {} and ended.generation == 4


def test_whether_steps_of_the_run_were_read_survives_the_controller_and_ends_with_the_run(world: Any) -> None:
    assert not fold_job("llm", []).view(()).had_steps
    world.script = restart_once(world)
    world.life(TICKS)
    past = world.events()
    begun = next(index for index, event in enumerate(past) if event.payload.get("generation") == 2)
    assert fold_job("llm", past[: begun + 1]).view(()).had_steps, "generation 2 has made none yet, generation 1 did"
    again = LedgerEvent(999, past[-1].time_s, kinds.JOB_REGISTERED, "llm", None, None, {})
    third = LedgerEvent(
        1000, past[-1].time_s, kinds.GENERATION_STARTED, "llm", None, "start", {"generation": 3, "rank_machine": {"0": "m0"}}
    )
    assert not fold_job("llm", [*past, again, third]).view(()).had_steps
