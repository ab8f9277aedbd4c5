"""While the ledger cannot be written nothing is acted on and nothing is forgotten, however long it takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from minder.act.controller.backlog import Backlog
from minder.act.controller.reporting.status import read_status
from minder.act.controller.state import JobState
from minder.act.policy.context import PolicyContext
from minder.model.decision import Decision
from minder.model.errors import LedgerError
from minder.model.evidence import Verdict
from minder.record.incidents import kinds

WRITERS = ("append", "open_incident", "history", "intend")


def verdict(machine: str, time_s: float) -> Verdict:
    return Verdict(time_s, "machine", "evict", (machine,), "explicit", 0.9, time_s)


def blocked(app: Any, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    def refuse(*unused: Any, **more: Any) -> None:
        raise LedgerError("the disk is full")

    for name in names:
        monkeypatch.setattr(app.ledger, name, refuse)


def accuse_once(world: Any) -> None:
    world.script = lambda observation: [world.accuse("m1")] if observation.job.phase == "running" else []


def tick_through(app: Any, world: Any, seconds: float) -> None:
    for _ in range(4):
        world.clock.sleep(seconds / 4)
        app.controller._step_or_wait()


@pytest.mark.parametrize("names", [WRITERS, ("history",), ("append",), ("open_incident",)])
def test_a_short_outage_delays_the_eviction_and_loses_nothing(world: Any, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)  # it steps
    accuse_once(world)
    with monkeypatch.context() as patch:
        blocked(app, patch, *names)
        tick_through(app, world, 20.0)
        assert world.actuator.executed == []
        assert read_status(world.folder / "status.json")["undecided"] == 1  # type: ignore[index]
    world.tick(app, 4)
    app.close()
    assert len(world.actuator.executed) == 1
    assert app.state.rank_machine[1] == "s0"


@pytest.mark.parametrize("names", [WRITERS, ("history",)])
def test_after_a_long_outage_a_person_is_paged_and_nobody_evicted(
    world: Any, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)  # it steps
    accuse_once(world)
    with monkeypatch.context() as patch:
        blocked(app, patch, *names)
        tick_through(app, world, 1800.0)
    world.tick(app, 3)
    app.close()
    assert world.actuator.executed == []
    (decision,) = world.events(kinds.DECISION)
    assert (decision.payload["action"], decision.payload["reason"], decision.payload["machines"]) == ("page", "ledger_unavailable", ["m1"])
    assert decision.incident == world.events(kinds.VERDICT)[0].incident


def test_a_policy_that_fails_is_asked_again(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)  # it steps
    accuse_once(world)
    with monkeypatch.context() as patch:
        patch.setattr(app.controller._stages.policy, "decide", lambda *unused: 1 / 0)
        world.tick(app, 3)
        assert world.actuator.executed == []
    world.tick(app, 3)
    app.close()
    assert len(world.actuator.executed) == 1


def test_the_queue_is_bounded_and_counts_what_it_drops() -> None:
    backlog = Backlog(most=3)
    backlog.note(verdict(f"m{number}", number) for number in range(5))
    assert ([item.machines[0] for item in backlog.unrecorded], backlog.dropped, len(backlog)) == (["m2", "m3", "m4"], 2, 3)
    item = (verdict("m9", 9.0), "llm-1")
    backlog.put([item, item])
    backlog.put([item])
    assert backlog.items == {item: "ledger_unavailable"}


def test_what_the_policy_put_off_for_too_long_is_paged_with_its_reason(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    accuse_once(world)

    def not_now(verdicts: Any, history: Any, context: Any) -> list[Decision]:
        return [Decision("op", context.now_s, "none", verdicts[0].machines, "cooldown", "asked again later", verdicts[0])]

    monkeypatch.setattr(app.controller._stages.policy, "decide", not_now)
    tick_through(app, world, 800.0)
    assert world.events(kinds.DECISION) == []
    tick_through(app, world, 800.0)
    app.close()
    assert [(event.payload["action"], event.payload["reason"]) for event in world.events(kinds.DECISION)] == [("page", "cooldown")]


def test_what_was_dropped_is_told_to_the_ledger(world: Any) -> None:
    app = world.app()
    app.begin()
    app.controller._tick.backlog.dropped = 2
    world.tick(app)
    app.close()
    (event,) = [event for event in world.events(kinds.DEGRADED) if event.payload["what"] == "backlog"]
    assert event.payload["detail"].startswith("2 conclusions are lost")


def pause(app: Any, world: Any, seconds: float) -> None:
    payload = {"scope": "job", "target": "llm", "until_s": world.clock.now_s() + seconds, "reason": "firmware"}
    app.ledger.append(kinds.PAUSE, payload, job="llm")


def reasons(world: Any) -> list[tuple[str, str]]:
    return [(event.payload["action"], event.payload["reason"]) for event in world.events(kinds.DECISION)]


def whole(world: Any, **changes: Any) -> None:
    """The job as a whole fails, reported once."""
    world.script = lambda observation: [world.accuse(kind="job", **changes)] if observation.job.generation == 1 else []
    world.workers_dead = True


@pytest.mark.parametrize("restarted", [False, True], ids=["the same controller", "another controller"])
@pytest.mark.parametrize("fails", ["job", "machine"])
def test_what_fails_during_a_pause_is_reported_once_and_asked_again_when_it_ends(world: Any, restarted: bool, fails: str) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    pause(app, world, 2000.0)
    whole(world) if fails == "job" else accuse_once(world)
    world.tick(app, 3)
    for _ in range(5):  # longer than a conclusion may wait for anything else
        world.clock.sleep(300.0)
        world.tick(app)
    assert reasons(world) == [("page", "paused")] and app.state.generation == 1
    if restarted:
        app.close()
        world.script = lambda observation: []  # no rule reports it again
        app = world.app()
        app.begin()
    world.clock.sleep(600.0)
    world.tick(app, 2)
    assert app.state.generation == 2 and app.state.barred == ({"m1"} if fails == "machine" else set())
    app.close()


def test_what_recovered_during_a_pause_or_runs_again_is_let_be(world: Any) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    pause(app, world, 60.0)
    world.script = lambda observation: [world.accuse("m1", cause="stall"), world.accuse(kind="job")]
    world.tick(app, 2)
    world.script = lambda observation: [world.accuse("m1", cause="stall", kind="recovered", tier="watch")]
    world.tick(app, 2)
    world.clock.sleep(60.0)
    world.tick(app, 2)
    app.close()
    assert app.state.generation == 1 and world.actuator.executed == []
    details = [event.payload["detail"] for event in world.events(kinds.DECISION) if event.payload["action"] == "none"]
    assert details == ["recovered while it waited", "the job runs: nothing to start again"]


def test_what_recovered_while_it_waited_for_the_cooldown_is_not_acted_on(world: Any) -> None:
    """A fact stays one: a lost device does not come back because no rule reports it again."""
    for cause, stays in (("stall", False), ("explicit", True)):
        backlog, context = Backlog(), PolicyContext(1100.0, JobState("llm", 1, 1, {0: "m1"}, "running", 900.0).view(()))
        item = (replace(verdict("m1", 1000.0), cause=cause), "llm-1")
        backlog.note([replace(item[0], time_s=1050.0, kind="recovered", tier="watch")])
        assert bool(backlog.why_over(item, "cooldown", context)) is not stays
        assert not backlog.why_over((replace(item[0], time_s=1060.0), "llm-1"), "cooldown", context), "seen again"
        assert not backlog.why_over(item, "cooldown", replace(context, workers_dead=True)), "dead workers have not recovered"


def test_a_standstill_of_a_generation_that_is_over_is_over(world: Any) -> None:
    context = PolicyContext(1100.0, JobState("llm", 1, 2, {0: "m1"}, "running", 1050.0).view(()))
    said = verdict("m1", 1000.0)
    assert Backlog().why_over((replace(said, cause="stall"), "llm-1"), "cooldown", context)
    assert Backlog().why_over((replace(said, kind="job", machines=()), "llm-1"), "cooldown", context)
    assert not Backlog().why_over((said, "llm-1"), "cooldown", context)
