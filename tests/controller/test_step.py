"""One tick: stages in order, failures at their boundary, the ledger's order, retries, dry run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.controller.reporting.status import read_status
from minder.diagnose.verdicts.judge import Judge
from minder.model.errors import LedgerError, SourceError
from minder.model.evidence import Signal, Verdict
from minder.model.observation import Observation, RequestKind
from minder.record.incidents import kinds


class Broken:
    """Raises from whatever is asked of it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def _raise(self, *unused: Any) -> Any:
        raise self._error

    collect = push = pop = judge = decide = _raise

    def notes(self) -> list[str]:
        return []

    def close(self) -> None: ...


def after_first_steps(world: Any, machine: str = "m1") -> Callable[[Any], list[Any]]:
    """Accuse this machine as long as it is in the job, once the job has stepped."""

    def script(observation: Any) -> list[Any]:
        running = observation.job.phase == "running" and machine in observation.job.machines
        return [world.accuse(machine)] if running else []

    return script


def test_from_a_verdict_to_a_job_that_steps_again(world: Any) -> None:
    world.script = after_first_steps(world)
    app = world.life(8)
    assert app.state.rank_machine == {0: "m0", 1: "s0", 2: "m2", 3: "m3"}
    assert (app.state.generation, app.state.phase, app.state.barred) == (2, "running", {"m1"})
    assert world.fleet.captured == ["m1", "m0", "m2"]
    assert len(world.actuator.executed) == 1


def test_the_ledger_tells_it_in_order_and_the_intent_before_the_action(world: Any) -> None:
    world.script = after_first_steps(world)
    world.life(8)
    told = [event.kind for event in world.events() if event.kind not in (kinds.RECOVERY_PHASE, kinds.EVIDENCE)]
    assert told == [
        kinds.JOB_REGISTERED, kinds.GENERATION_STARTED, kinds.FIRST_STEP, kinds.VERDICT, kinds.DECISION, kinds.INTENT, kinds.BARRED,
        kinds.RESULT, kinds.GENERATION_STARTED, kinds.FIRST_STEP,
    ]  # fmt: skip
    evidence = [event.id for event in world.events(kinds.EVIDENCE)]
    (result,) = world.events(kinds.RESULT)
    assert max(evidence) < result.id
    with world.ledger() as ledger:
        (incident,) = ledger.incidents(job="llm")
    assert incident.state == "closed"


@pytest.mark.parametrize("stage", ["source", "windows", "judge"])
def test_a_stage_that_fails_is_counted_and_told_and_the_others_go_on(world: Any, stage: str) -> None:
    error = SourceError("no answer") if stage == "source" else RuntimeError("bug")
    if stage == "judge":
        world.script = Broken(error).judge
    else:
        setattr(world, stage, Broken(error))
    app = world.life(3)
    assert app.state.phase == "running" and app.state.last_step == 6
    status = read_status(world.folder / "status.json") or {}
    name = {"source": "telemetry"}.get(stage, stage)
    assert status["errors"] == {name: 3}
    told = world.events(kinds.SOURCE_ERROR, kinds.DEGRADED)
    assert len(told) == 1 and str(error) in json.dumps(dict(told[0].payload))


def test_the_status_says_what_the_job_is_doing_and_since_when(world: Any) -> None:
    world.life(20)
    mode = (read_status(world.folder / "status.json") or {})["mode"]
    assert (mode["likeliest"], mode["source"]) == ("stepping", "step counter")
    assert sum(mode["probabilities"].values()) == pytest.approx(1.0, abs=1e-3)
    assert 0 <= world.clock.now_s() - mode["since_s"] <= 20.0


def test_a_policy_that_fails_harms_nobody(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.act.policy.policy import Policy

    monkeypatch.setattr(Policy, "decide", Broken(RuntimeError("bug")).decide)
    world.script = after_first_steps(world)
    app = world.life(4)
    assert (app.state.generation, app.state.phase) == (1, "running")
    assert [event.payload["what"] for event in world.events(kinds.DEGRADED)] == ["policy"]


def test_not_now_is_asked_again_with_the_same_verdict(world: Any) -> None:
    """A stall right after a restart waits for the cooldown; then it is acted on although the judge says it once."""
    world.policy = replace(world.policy, cooldown_s=10.0)
    told: list[float] = []

    def script(observation: Any) -> list[Any]:
        if observation.job.phase != "running" or observation.job.generation != 2:
            return [world.accuse("m1")] if observation.job.phase == "running" and observation.job.generation == 1 else []
        told.append(observation.now_s)
        return [world.accuse("m2", cause="stall")]

    world.script = script
    app = world.life(20)
    assert app.state.generation == 3 and app.state.barred == {"m1", "m2"}
    begun = world.events(kinds.GENERATION_STARTED)
    assert begun[2].time_s - begun[1].time_s >= 10.0
    assert len([event for event in world.events(kinds.DECISION) if event.payload["reason"] == "cooldown"]) == 0


def test_a_dry_run_records_the_decision_and_touches_nothing(world: Any) -> None:
    world.policy = replace(world.policy, dry_run=True)
    world.script = after_first_steps(world)
    app = world.life(6)
    (decision,) = world.events(kinds.DECISION)
    assert (decision.payload["action"], decision.payload["reason"]) == ("page", "dry_run")
    assert world.actuator.executed == [] and world.events(kinds.INTENT, kinds.BARRED) == []
    assert (app.state.generation, app.state.phase) == (1, "running")


def test_two_verdicts_of_one_tick_are_one_eviction_and_one_restart(world: Any) -> None:
    world.script = lambda observation: [
        world.accuse(name) for name in ("m1", "m3") if observation.job.phase == "running" and observation.job.generation == 1
    ]
    app = world.life(8)
    assert app.state.rank_machine == {0: "m0", 1: "s0", 2: "m2", 3: "s1"}
    assert len(world.events(kinds.INTENT)) == 1 and app.state.generation == 2


def with_a_deaf_standby(world: Any) -> Any:
    """The application six ticks after the first trouble, with a first standby that never starts its workers."""
    world.script = after_first_steps(world)
    app = world.app()
    app.begin()
    world.tick(app, 1)
    world.fleet._take = deaf(world.fleet, "s0")
    world.tick(app, 6)
    return app


def test_a_standby_that_does_not_start_is_replaced_by_the_next_one(world: Any) -> None:
    app = with_a_deaf_standby(world)
    assert app.state.rank_machine[1] == "s1" and app.state.barred == {"m1", "s0"}
    assert app.state.phase == "running" and app.state.first_step_seen
    app.close()


def deaf(fleet: Any, *machines: str) -> Callable[..., Any]:
    """These machines take the order and never run a worker (their launcher answers, their worker is stopped)."""
    take = type(fleet)._take.__get__(fleet)
    items = [fleet.launchers[name] for name in machines]

    def answer(item: Any, body: Any) -> Any:
        found = take(item, body)
        if item in items and item.state == "running":
            item.state = "starting"
        return found

    return answer


def test_two_bad_standbys_are_one_more_decision_not_two_generations(world: Any) -> None:
    """m1 and m3 go; both standbys do not start; nobody is left: a page, and no machine that works is evicted."""
    world.script = lambda observation: [
        world.accuse(name) for name in ("m1", "m3") if observation.job.phase == "running" and observation.job.generation == 1
    ]
    app = world.app()
    app.begin()
    world.tick(app, 1)
    world.fleet._take = deaf(world.fleet, "s0", "s1")
    world.tick(app, 4)
    assert app.state.barred == {"m1", "m3"}
    assert app.state.generation == 2
    pages = [event.payload for event in world.events(kinds.DECISION) if event.payload["action"] == "page"]
    assert {name for page in pages for name in page["machines"]} == {"s0", "s1"}
    app.close()


def test_an_eviction_that_nobody_could_confirm_does_not_block_the_next_one(world: Any) -> None:
    """The lost machine's launcher answers nobody; its generation shuts it out all the same."""
    world.actuator.ambiguous = True
    faults = iter(["m1", "m2"])
    current = [next(faults)]

    def script(observation: Any) -> list[Any]:
        if observation.job.phase == "running" and observation.job.generation == 2 and current[0] == "m1":
            current[0] = next(faults)
        return [world.accuse(current[0])] if observation.job.phase == "running" and current[0] in observation.job.machines else []

    world.script = script
    app = world.life(10)
    assert app.state.barred == {"m1", "m2"} and app.state.generation == 3
    assert len(world.events(kinds.AMBIGUOUS)) == 2 and len(world.events(kinds.RESULT)) == 2


def test_a_ledger_that_fails_for_a_while_stops_actions_not_the_loop_and_the_verdict_is_not_lost(world: Any) -> None:
    world.script = after_first_steps(world)
    app = world.app()
    app.begin()
    store: Any = app.ledger._store
    kept = {name: getattr(store, name) for name in ("insert", "insert_once", "insert_first")}

    def full(*unused: Any) -> Any:
        raise LedgerError("disk full")

    world.tick(app, 1)
    for name in kept:
        setattr(store, name, full)
    for _ in range(3):
        world.fleet.advance()
        world.clock.sleep(1.0)
        app.controller._step_or_wait()
    assert world.actuator.executed == [] and app.state.generation == 1 and app.state.phase == "running"
    status = read_status(world.folder / "status.json") or {}
    assert status["errors"]["ledger"] >= 1 and "disk full" in status["message"]
    for name, write in kept.items():
        setattr(store, name, write)
    world.tick(app, 4)
    assert app.state.barred == {"m1"} and app.state.generation == 2
    app.close()


def test_a_status_that_cannot_be_written_is_a_part_that_failed_and_then_works_again(world: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It was counted and nothing else: log and ledger said nothing, while terminal and page stood still."""
    app = world.app()
    app.begin()
    in_the_way = world.folder / "status.json" / "not a file"
    (world.folder / "status.json").unlink(missing_ok=True)
    in_the_way.mkdir(parents=True)
    world.tick(app, 3)
    said = [record.getMessage() for record in caplog.records if getattr(record, "minder_fields", {}).get("part") == "status"]
    in_the_way.rmdir()
    in_the_way.parent.rmdir()
    world.tick(app, 1)
    assert said == ["part failed"] and caplog.records[-1].getMessage() == "part works again"
    status = read_status(world.folder / "status.json") or {}
    assert status["errors"]["status"] >= 3
    assert [event.payload["what"] for event in world.events(kinds.DEGRADED)] == ["status"]
    app.close()


def test_the_job_ends_when_every_rank_has_returned_also_if_it_never_told_a_step(world: Any) -> None:
    app = world.app()
    app.begin()
    for rank in range(3):
        world.fleet.signals.append(Signal(world.clock.now_s(), "exit", f"m{rank}", "", rank, None, 1, 1, {"code": 0}))
    app.controller.step(world.clock.now_s())
    assert app.state.phase == "starting"
    world.fleet.signals.append(Signal(world.clock.now_s(), "exit", "m3", "", 3, None, 1, 1, {"code": 0}))
    app.controller.step(world.clock.now_s())
    assert app.state.phase == "finished"
    assert [event.payload["outcome"] for event in world.events(kinds.JOB_ENDED)] == ["finished"]
    app.close()


def test_an_incident_that_was_left_to_a_person_ends_with_the_job(world: Any) -> None:
    for name in ("s0", "s1"):
        world.fleet.launchers[name].state = "starting"
    world.script = after_first_steps(world)
    app = world.app()
    app.begin()
    world.tick(app, 5)
    assert states(world) == [("open", "")]
    now_s = world.clock.now_s()
    world.fleet.signals += [Signal(now_s, "exit", f"m{rank}", "", rank, None, 1, 1, {"code": 0}) for rank in range(4)]
    world.tick(app, 1)
    assert app.state.phase == "finished" and states(world) == [("closed", "the end of the job")]
    app.close()


def test_a_restart_that_finished_ranks_of_the_older_generation_do_not_end_the_job(world: Any) -> None:
    app = world.app()
    app.begin()
    world.tick(app, 2)
    old = [Signal(world.clock.now_s(), "exit", f"m{rank}", "", rank, None, 1, 0, {"code": 0}) for rank in range(4)]
    world.fleet.signals = old
    world.tick(app, 1)
    assert app.state.phase == "running"
    app.close()


def test_no_standby_pages_and_evicts_nobody(world: Any) -> None:
    for name in ("s0", "s1"):
        world.fleet.launchers[name].state = "starting"
    world.script = after_first_steps(world)
    app = world.life(5)
    (decision,) = world.events(kinds.DECISION)
    assert (decision.payload["action"], decision.payload["reason"]) == ("page", "no_standby")
    assert app.state.barred == set() and app.state.generation == 1


def test_no_standby_and_dead_workers_restarts_in_place(world: Any) -> None:
    for name in ("s0", "s1"):
        world.fleet.launchers[name].state = "starting"
    world.workers_dead = True
    world.script = after_first_steps(world)
    app = world.life(5)
    assert app.state.barred == set() and app.state.generation == 2
    assert app.state.rank_machine == {rank: f"m{rank}" for rank in range(4)}
    (result,) = world.events(kinds.RESULT)
    assert "restarted in place" in result.payload["detail"]


def test_dead_workers_wait_for_a_launcher_that_does_not_answer(world: Any) -> None:
    """A generation could not start without it, and would count as a restart."""
    app = world.app()
    app.begin()
    world.tick(app, 5)
    fails = replace(world.accuse(), kind="job", cause="unknown", machines=())
    world.workers_dead, world.fleet.launchers["m2"].silent = True, True
    world.script = lambda observation: [replace(fails, time_s=observation.now_s)] if observation.job.generation == 1 else []
    world.tick(app, 5)
    world.clock.sleep(2000.0)
    world.tick(app, 5)
    assert app.state.generation == 1, "however long: what is lost has verdicts of its own"
    said = [(event.payload["action"], event.payload["reason"]) for event in world.events(kinds.DECISION)]
    assert said == [("none", "launcher_gone")], "it is said once"
    world.fleet.launchers["m2"].silent = False
    world.tick(app, 8)
    assert app.state.generation == 2
    app.close()


def states(world: Any) -> list[tuple[str, str]]:
    with world.ledger() as ledger:
        return [(incident.state, incident.closed_by) for incident in ledger.incidents(job="llm")]


def test_one_restart_closes_every_incident_that_it_answers(world: Any) -> None:
    world.script = lambda observation: [
        world.accuse(name) for name in ("m1", "m3") if observation.job.phase == "running" and observation.job.generation == 1
    ]
    world.life(8)
    assert states(world) == [("closed", "first new step")] * 2
    (closed,) = world.events(kinds.CLOSED)
    assert closed.payload["note"] == "handled together with llm-1"


def test_a_standby_that_was_bad_too_leaves_no_incident_open(world: Any) -> None:
    app = with_a_deaf_standby(world)
    app.close()
    assert app.state.first_step_seen and states(world) == [("closed", "first new step")] * 2


def test_a_job_that_is_blamed_beside_a_machine_is_started_again_once(world: Any) -> None:
    def script(observation: Any) -> list[Any]:
        if observation.job.phase != "running" or observation.job.generation != 1:
            return []
        return [world.accuse("m1"), replace(world.accuse(), kind="job", machines=())]

    world.script = script
    app = world.life(12)
    assert app.state.generation == 2 and app.state.barred == {"m1"}
    assert states(world) == [("closed", "first new step")] * 2


@pytest.mark.parametrize(("cause", "ends"), [("absence", ("closed", "first new step")), ("explicit", ("open", ""))])
def test_two_dead_machines_without_a_standby_restart_in_place(world: Any, cause: str, ends: tuple[str, str]) -> None:
    """A restart ends silence; it takes no kernel line back."""
    for name in ("s0", "s1"):
        world.fleet.launchers[name].state = "starting"
    world.workers_dead = True
    world.script = lambda observation: [
        world.accuse(name, cause=cause) for name in ("m1", "m3") if observation.job.phase == "running" and observation.job.generation == 1
    ]
    app = world.life(8)
    assert app.state.generation == 2 and app.state.barred == set()
    assert states(world) == [ends] * 2


def test_a_controller_that_is_killed_on_the_way_to_the_first_step_closes_them_all(new_world: Any) -> None:
    for die_at in range(12, 24):
        world = new_world()
        world.script = lambda observation, world=world: [
            world.accuse(name) for name in ("m1", "m3") if observation.job.phase == "running" and observation.job.generation == 1
        ]
        world.life(8, die_at)
        world.life(8)
        assert states(world) == [("closed", "first new step")] * 2, die_at


class Asking(Judge):
    """The world's judge, whose rules want a round at every tick."""

    def __init__(self, judge: Any) -> None:
        super().__init__([])
        self._judge = judge

    def judge(self, observation: Observation) -> tuple[list[Verdict], frozenset[RequestKind]]:
        return self._judge.judge(observation)[0], frozenset({"round"})


@pytest.mark.parametrize(("tier", "looks"), [("page", True), ("evict", False)])
def test_rounds_of_a_slow_job_are_not_taken_once_it_is_known_whom_to_evict(world: Any, tier: str, looks: bool) -> None:
    """A page wants a second witness; of an accused machine enough is known."""
    world.policy = replace(world.policy, dry_run=True)
    app = world.app()
    asked: list[str] = []
    app.controller._captures.request = lambda wanted, observation, since_s: asked.extend(wanted)
    app.controller._stages = replace(app.controller._stages, judge=Asking(app.controller._stages.judge))
    try:
        app.begin()
        world.tick(app, 4)
        assert "round" in asked
        world.script = lambda observation: [world.accuse("m1", tier=tier)]
        world.tick(app)
        asked.clear()
        world.tick(app, 5)
        assert ("round" in asked) == looks
        world.clock.sleep(600.0)
        world.tick(app)
        assert "round" in asked, "not for ever"
    finally:
        app.close()
