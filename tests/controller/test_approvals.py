"""Approval mode: an eviction waits for an operator, is asked about once, and is carried out only if it still holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.model.errors import BadInputError
from minder.model.history import Approval
from minder.record.incidents import kinds


@pytest.fixture
def asking(world: Any) -> Any:
    """A world whose site wants to be asked for ten minutes; m1 hangs in the first generation."""
    world.policy = replace(world.policy, approval="required", approval_timeout_s=600.0)
    world.script = accuses(world, "m1")
    return world


def accuses(world: Any, *machines: str, **changes: Any) -> Callable[[Any], list[Any]]:
    def script(observation: Any) -> list[Any]:
        running = observation.job.phase == "running" and observation.job.generation == 1
        return [world.accuse(name, **{"cause": "stall", **changes}) for name in machines if running]

    return script


def begin(world: Any, ticks: int = 3) -> Any:
    app = world.app()
    app.begin()
    world.tick(app, ticks)
    return app


def asked(world: Any) -> list[Approval]:
    with world.ledger() as ledger:
        return list(ledger.approvals("llm"))


def answer(world: Any, what: Any = "approved", number: int = 0) -> None:
    with world.ledger() as ledger:
        ledger.answer_approval(asked(world)[number].decision.operation_id, what, by="alice", reason="looked at it")


def reasons(world: Any) -> list[tuple[str, str]]:
    return [(event.payload["action"], event.payload["reason"]) for event in world.events(kinds.DECISION)]


def test_an_eviction_waits_and_nothing_is_touched(asking: Any) -> None:
    app = begin(asking, 20)
    (question,) = asked(asking)
    assert (question.state, question.decision.machines, question.generation) == ("waiting", ("m1",), 1)
    assert question.until_s == pytest.approx(question.asked_s + 600.0)
    assert question.decision.verdict.evidence and question.decision.price and question.decision.replacements == ("s0",)
    assert asking.actuator.executed == [] and asking.events(kinds.INTENT, kinds.BARRED) == []
    assert reasons(asking) == [("none", "awaiting_approval")] and app.state.generation == 1
    app.close()


def test_an_approved_eviction_is_carried_out_once(asking: Any) -> None:
    app = begin(asking)
    answer(asking)
    asking.tick(app, 6)
    assert app.state.barred == {"m1"} and app.state.generation == 2 and app.state.rank_machine[1] == "s0"
    assert len(asking.actuator.executed) == 1 and asked(asking)[0].state == "carried_out"
    assert reasons(asking) == [("none", "awaiting_approval"), ("evict", "act")]
    assert "approved by alice" in asking.events(kinds.DECISION)[1].payload["stages"][-1]
    with asking.ledger() as ledger:
        assert ledger.incident(asked(asking)[0].incidents[0]).state == "closed"
    app.close()


def test_a_rejected_one_leaves_the_machine_and_is_not_asked_about_again(asking: Any) -> None:
    app = begin(asking)
    answer(asking, "rejected")
    asking.tick(app, 3)
    asking.script = accuses(asking, "m1", confidence=0.99)  # told again, as by a judge that knows nothing of it
    app.controller._stages.judge._told.clear()
    asking.tick(app, 3)
    assert len(asked(asking)) == 1 and asking.actuator.executed == [] and app.state.generation == 1
    assert set(reasons(asking)[1:]) == {("none", "approval_rejected")}
    app.close()


def test_dead_workers_wait_for_the_answer_and_are_started_again_without_it(asking: Any) -> None:
    asking.workers_dead = True
    app = begin(asking, 8)
    assert app.state.generation == 1
    answer(asking, "rejected")
    asking.workers_dead = True
    asking.tick(app, 1)
    asking.workers_dead = False
    asking.tick(app, 3)
    assert app.state.generation == 2 and app.state.rank_machine[1] == "m1" and app.state.barred == set()
    app.close()


@pytest.mark.parametrize(("rule", "state", "told"), [
    ("page", "expired", ("page", "approval_timeout")),
    ("reject", "rejected", ("none", "approval_rejected")),
    ("approve", "carried_out", ("evict", "act")),
])  # fmt: skip
def test_the_end_of_the_time_follows_the_rule_of_the_site(asking: Any, rule: str, state: str, told: tuple[str, str]) -> None:
    asking.policy = replace(asking.policy, approval_timeout_s=5.0, approval_on_timeout=rule)
    app = begin(asking, 14)
    (question,) = asked(asking)
    assert question.state == state and reasons(asking)[-1] == told
    assert len(asking.actuator.executed) == (rule == "approve")
    with asking.ledger() as ledger, pytest.raises(BadInputError, match=r"already|expired"):
        ledger.answer_approval(question.decision.operation_id, "approved", by="bob", reason="late")
    app.close()


def test_a_machine_that_recovered_is_not_evicted_by_an_old_question(asking: Any) -> None:
    app = begin(asking)
    asking.script = accuses(asking, "m1", kind="recovered", tier="watch")
    asking.tick(app, 1)
    (question,) = asked(asking)
    assert (question.state, question.why) == ("expired", "recovered")
    assert reasons(asking)[-1] == ("none", "approval_lapsed")
    with pytest.raises(BadInputError, match=r"expired \(recovered\)"):
        answer(asking)
    assert asking.actuator.executed == []
    app.close()


def test_a_job_that_was_started_again_meanwhile_ends_the_question(asking: Any) -> None:
    asking.script = accuses(asking, "m1", cause="slowdown")
    app = begin(asking)
    asking.workers_dead = True
    asking.script = lambda observation: [replace(asking.accuse(), kind="job", machines=())] if observation.job.generation == 1 else []
    asking.tick(app, 1)
    asking.workers_dead = False
    asking.tick(app, 2)
    (question,) = asked(asking)
    assert app.state.generation == 2 and (question.state, question.why) == ("expired", "restarted")
    with pytest.raises(BadInputError, match="restarted"):
        answer(asking)
    app.close()


def test_what_was_approved_is_checked_again_at_the_last_moment(asking: Any) -> None:
    app = begin(asking)
    answer(asking)
    for name in ("s0", "s1"):
        asking.fleet.launchers[name].state = "starting"
    asking.tick(app, 3)
    assert asking.actuator.executed == []
    assert reasons(asking)[-1] == ("page", "no_standby")
    assert (asked(asking)[0].state, asked(asking)[0].why) == ("expired", "no_standby")
    app.close()


@pytest.mark.parametrize("recovers", [False, True])
def test_what_was_approved_waits_for_the_end_of_a_pause_and_is_reported_once(asking: Any, recovers: bool) -> None:
    app = begin(asking)
    answer(asking)
    app.ledger.append(kinds.PAUSE, {"scope": "all", "target": None, "until_s": asking.clock.now_s() + 10.0, "reason": "firmware"})
    asking.tick(app, 5)
    assert asking.actuator.executed == [] and reasons(asking)[1:] == [("page", "paused")]
    if recovers:
        asking.script = accuses(asking, "m1", kind="recovered", tier="watch")
    asking.tick(app, 10)
    assert (len(asking.actuator.executed), asked(asking)[0].state) == ((0, "expired") if recovers else (1, "carried_out"))
    app.close()


def test_faults_of_one_moment_are_one_question_and_one_restart(asking: Any) -> None:
    asking.script = accuses(asking, "m1", "m3")
    app = begin(asking)
    (question,) = asked(asking)
    assert question.decision.machines == ("m1", "m3") and len(question.incidents) == 2
    answer(asking)
    asking.tick(app, 6)
    assert app.state.barred == {"m1", "m3"} and app.state.generation == 2
    app.close()


def test_whoever_answers_second_is_refused(asking: Any) -> None:
    app = begin(asking)
    answer(asking)
    for again in ("approved", "rejected"):
        with pytest.raises(BadInputError, match="was approved by alice already"):
            answer(asking, again)
    assert len(asking.events(kinds.APPROVAL_SETTLED)) == 1
    app.close()


def lives(world: Any, die_at: int) -> tuple[int, Any]:
    """A controller that dies after so many events, an answer, and another that goes on. The answer may come before or after."""
    first = world.life(6, die_at)
    if asked(world) and asked(world)[0].state == "waiting":
        answer(world)
    return first.state.generation, world.life(12)


@pytest.mark.lab
def test_a_controller_that_is_killed_at_any_event_asks_once_and_evicts_once(new_world: Callable[[], Any]) -> None:
    """Every event of the first life is a place to die at, the answer included."""
    for die_at in range(4, 16):
        world = new_world()
        world.policy = replace(world.policy, approval="required", approval_timeout_s=600.0)
        world.script = accuses(world, "m1")
        _, app = lives(world, die_at)
        if any(item.state == "waiting" for item in asked(world)):
            answer(world)
            app = world.life(6)
        assert [item.state for item in asked(world)] == ["carried_out"], die_at
        assert app.state.barred == {"m1"} and app.state.generation == 2, die_at
        assert len(world.events(kinds.APPROVAL_ASKED)) == 1 and len(world.events(kinds.INTENT)) == 1
        assert len(set(world.actuator.executed)) == 1


def test_a_controller_that_has_not_seen_it_for_itself_does_not_act_on_an_answer(asking: Any) -> None:
    """The machine recovered while no controller looked: nobody tells the next one."""
    asking.life(3)
    asking.script = lambda observation: []
    answer(asking)
    app = begin(asking, 5)
    assert asking.actuator.executed == [] and asked(asking)[0].state == "approved"
    asking.clock.sleep(130.0)
    asking.tick(app, 1)
    assert (asked(asking)[0].state, asked(asking)[0].why) == ("expired", "not_seen_again")
    assert reasons(asking)[-1] == ("page", "approval_lapsed") and asking.actuator.executed == []
    app.close()


def test_what_the_next_controller_sees_again_is_answered_by_the_eviction(asking: Any) -> None:
    """Approved while no controller ran: the trouble is concluded anew, and its eviction is not followed by "nothing is done"."""
    asking.life(3)
    answer(asking)
    app = begin(asking, 6)
    assert app.state.barred == {"m1"} and app.state.generation == 2
    assert reasons(asking) == [("none", "awaiting_approval"), ("evict", "act")]
    app.close()


def test_an_event_that_happened_needs_no_second_look(asking: Any) -> None:
    asking.script = accuses(asking, "m1", cause="explicit")
    asking.life(3)
    asking.script = lambda observation: []
    answer(asking)
    app = begin(asking, 5)
    assert app.state.barred == {"m1"}
    app.close()


@pytest.mark.parametrize("by_s", [7200.0, pytest.param(-7200.0, marks=pytest.mark.release)])
@pytest.mark.parametrize("rule", ["approve", "reject", "page"])
def test_setting_the_clock_neither_ends_a_question_nor_keeps_it_open(asking: Any, rule: str, by_s: float) -> None:
    asking.policy = replace(asking.policy, approval_timeout_s=40.0, approval_on_timeout=rule)
    app = begin(asking, 5)
    asking.clock.set_forward(by_s)
    asking.tick(app, 20)
    (question,) = asked(asking)
    assert question.state == "waiting" and asking.actuator.executed == []
    left_s = question.until_s - asking.clock.now_s()
    assert 0.0 < left_s < 20.0 and question.until_s - question.asked_s == pytest.approx(40.0)  # as operators are told
    asking.tick(app, 20)
    states = {"approve": "carried_out", "reject": "rejected", "page": "expired"}
    assert asked(asking)[0].state == states[rule] and len(asking.actuator.executed) == (rule == "approve")
    app.close()


def test_after_the_clock_was_set_an_operator_can_still_answer(asking: Any) -> None:
    app = begin(asking)
    asking.clock.set_forward(7200.0)
    asking.tick(app, 2)
    answer(asking)
    asking.tick(app, 8)
    assert asked(asking)[0].state == "carried_out" and len(asking.actuator.executed) == 1
    app.close()


def test_a_machine_that_recovered_is_not_evicted_because_the_clock_was_set_back(asking: Any) -> None:
    app = begin(asking)
    asking.clock.set_forward(-7200.0)
    asking.tick(app, 8)
    asking.script = accuses(asking, "m1", kind="recovered", tier="watch")
    asking.tick(app, 1)
    assert (asked(asking)[0].state, asked(asking)[0].why) == ("expired", "recovered") and asking.actuator.executed == []
    app.close()
