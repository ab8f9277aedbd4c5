"""The rung `replay`, live: groups of the job's machines replay it while it stands, and the machine where failing
groups cross goes; whenever the controller dies, the next one goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from held_job import acted, fails, result_of, rungs, until

from minder.act.controller.state import fold_job
from minder.act.policy.ladder import LadderConfig, Rung
from minder.record.incidents import kinds
from minder.record.incidents.outlook import outlook
from minder.record.incidents.replays import ReplayRecord, fold_replays
from minder.record.incidents.report import incident_report

TICKS = 16
PARTS = 5  # of the places to die at
KILLED_TICKS = 12
LADDER = LadderConfig(rungs=(Rung(rung="replay", on=("unknown", "nan"), times=1), Rung(rung="evict", on=("machine",))))


@pytest.fixture
def make(new_world: Callable[[], Any]) -> Callable[..., Any]:
    """make("m2"): a job of four machines, one rank each, of which m2 computes other bits when it is replayed; rank 1 fails on m1."""

    def build(faulty: str = "", ladder: LadderConfig = LADDER) -> Any:
        world = new_world()
        world.fleet.offers = ["probes", "replay"]
        world.policy = replace(world.policy, ladder=ladder)
        world.script = fails(world)
        if faulty:
            world.fleet.launchers[faulty].faults["replay"] = "flips a bit"
        return world

    return build


def record(world: Any) -> ReplayRecord:
    (found,) = fold_replays(world.events(kinds.REPLAY))
    return found


def test_the_machine_where_failing_groups_cross_is_evicted_with_the_groups_as_evidence(make: Callable[..., Any]) -> None:
    world = make("m2")
    app = world.life(TICKS)
    assert rungs(world) == ["replay", "evict"] and app.state.barred == {"m2"}
    assert (app.state.phase, app.state.rank_machine[2]) == ("running", "s0")
    phases = record(world).phases
    assert {number: {name: group.machines for name, group in phase.groups.items()} for number, phase in phases.items()} == {
        1: {"h0": ("m0", "m1"), "h1": ("m2", "m3")},
        2: {"v0": ("m0", "m2"), "v1": ("m1", "m3")},
    }
    assert record(world).suspects == ("m2",)
    evict = acted(world)[1]
    assert (evict.trouble, evict.verdict.sources, evict.verdict.cause) == ("machine", ("replay",), "numeric")
    assert "every group with m2 fails (h1: two identical runs differ from step 2 on; v0: " in evict.verdict.evidence[0].message
    said = result_of(world, "replay")["detail"]
    assert said.startswith("found: m2 is the only machine of h1, v0 that passed in no other group, confidence 0.")
    assert "2 phases, 4 groups, " in said and "s of 4 machines" in said


def test_every_group_has_generations_of_its_own_and_the_job_goes_on_above_them(make: Callable[..., Any]) -> None:
    world = make("m2")
    app = world.life(TICKS)
    groups = [group for phase in record(world).phases.values() for group in phase.groups.values()]
    assert [group.generations for group in groups] == [(2, 2), (3, 3), (4, 4), (5, 5)]
    assert app.state.generation == 6
    ports = {order["meetings"][0]["port"] for order in world.fleet.groups.orders.values()}
    assert len(ports) == 4 and {order["group"] for order in world.fleet.groups.orders.values()} == {"h0", "h1", "v0", "v1"}
    written = world.events(kinds.REPLAY, kinds.GENERATION_STARTED)
    begun = [event.payload["group"] for event in written if event.payload.get("state") == "begin"]
    assert begun == ["h0", "h1", "v0", "v1"]


def test_a_script_meets_at_a_store_for_each_run(make: Callable[..., Any]) -> None:
    world = make("m2")
    app = world.app()
    app.controller._stages.replaying._settings = replace(app.controller._stages.replaying._settings, program="script", runs=3, layers=80)
    app.begin()
    until(world, app, lambda: app.state.phase == "running" and app.state.generation > 1, 30)
    app.close()
    order = next(iter(world.fleet.groups.orders.values()))
    assert [at["generation"] for at in order["meetings"]] == [2, 4, 6] and (order["program"], order["layers"]) == ("script", 1)
    assert app.state.generation == 14 and app.state.barred == {"m2"}


def test_a_failure_that_does_not_come_back_names_no_machine_and_the_job_goes_on(make: Callable[..., Any]) -> None:
    world = make()
    app = world.life(TICKS)
    assert rungs(world) == ["replay", "reattempt"] and app.state.barred == set() and app.state.phase == "running"
    assert "not judged: the failure did not come back in 2 runs of each group" in result_of(world, "replay")["detail"]
    paged = [event.payload for event in world.events(kinds.DECISION) if event.payload["action"] == "page"]
    assert any("did not come back" in skipped["detail"] for skipped in paged[-1]["passed_over"])


def test_without_a_standby_a_person_is_called_and_the_job_goes_on_as_it_was(make: Callable[..., Any]) -> None:
    world = make("m2")
    for name in ("s0", "s1"):
        world.fleet.launchers[name].silent = True
    app = world.life(TICKS)
    assert app.state.phase == "running" and app.state.barred == set() and app.state.rank_machine[2] == "m2"
    reasons = [event.payload["reason"] for event in world.events(kinds.DECISION) if event.payload["machines"] == ["m2"]]
    assert "no_standby" in reasons


def test_a_failure_of_every_group_evicts_nothing(make: Callable[..., Any]) -> None:
    world = make("m0")
    world.fleet.launchers["m2"].faults["replay"] = "flips a bit"
    app = world.life(TICKS)
    assert app.state.barred == set() and "every group fails" in result_of(world, "replay")["detail"]


def test_a_machine_that_says_nothing_leaves_its_group_unknown(make: Callable[..., Any]) -> None:
    world = make("m2")
    app = world.app()
    app.begin()
    until(world, app, lambda: app.state.phase == "replaying")
    world.fleet.launchers["m3"].silent = True
    until(world, app, lambda: bool(world.events(kinds.RESULT)), 60)
    app.close()
    assert record(world).phases[1].groups["h1"].outcome == "unknown"
    assert "group h1 says nothing: it did not run: m3: does not answer" in result_of(world, "replay")["detail"]
    assert not any("replay" in event.payload["sources"] for event in world.events(kinds.VERDICT)), "unknown costs no machine"


def test_after_its_limit_the_job_goes_on(make: Callable[..., Any]) -> None:
    world = make("m2")
    world.policy = replace(world.policy, replay_limit_s=8.0)
    for launcher in world.fleet.launchers.values():
        launcher.probes_take = 1000
    app = world.life(30)
    assert app.state.phase == "running" and app.state.barred == set()
    assert "not done within 8 s" in result_of(world, "replay")["detail"]


@pytest.mark.parametrize("how", ["pause", "order"])
def test_a_person_ends_the_replay_and_the_job_is_resumed(make: Callable[..., Any], how: str) -> None:
    world = make("m2")
    for launcher in world.fleet.launchers.values():
        launcher.probes_take = 1000
    app = world.app()
    app.begin()
    until(world, app, lambda: app.state.phase == "replaying")
    if how == "pause":
        until_s = world.clock.now_s() + 500
        app.ledger.append(kinds.PAUSE, {"scope": "all", "target": None, "until_s": until_s, "reason": "a look"})
    else:
        app.ledger.append(kinds.RESTART_ASKED, {"reason": "now", "by": "ann"}, job="llm")
    world.tick(app, 2)
    app.close()
    assert not app.state.is_held and app.state.generation >= 4, "above the groups' generations"
    assert "ended before its time" in result_of(world, "replay")["detail"] and app.state.barred == set()


def test_it_follows_the_tests_while_the_job_still_stands(make: Callable[..., Any]) -> None:
    """All tests pass and no trial is possible: the replay takes the job over from the diagnosis."""
    rungs_ = (Rung(rung="diagnose", on=("unknown",), times=1), *(LADDER.rungs or ()))
    world = make("m2", LadderConfig(rungs=rungs_))
    app = world.life(2 * TICKS)
    assert rungs(world) == ["diagnose", "replay", "evict"] and app.state.barred == {"m2"}
    assert [event.payload["generation"] for event in world.events(kinds.GENERATION_STARTED)] == [1, 6]


def test_in_a_dry_run_and_where_a_launcher_replays_nothing_it_is_not_climbed(make: Callable[..., Any]) -> None:
    world = make("m2")
    world.policy, world.workers_dead = replace(world.policy, dry_run=True), True
    world.life(TICKS)
    said = [event.payload["detail"] for event in world.events(kinds.DECISION) if event.payload["reason"] == "dry_run"]
    assert "dry run: would replay llm on groups of its 4 machines; --act turns it on" in said and "replay" not in rungs(world)
    world = make("m2")
    world.fleet.offers = ["probes"]
    world.life(TICKS)
    assert "replay" not in rungs(world)


def test_the_incident_shows_the_groups_and_what_they_cost(make: Callable[..., Any]) -> None:
    world = make("m2")
    app = world.app()
    app.begin()
    until(world, app, lambda: app.state.phase == "replaying")
    incident = next(str(event.incident) for event in world.events(kinds.INTENT) if event.payload["action"] == "replay")
    with world.ledger() as ledger:
        assert outlook(ledger.incident(incident)).what.startswith("The job stands while groups of its machines replay it.")
    world.tick(app, TICKS)
    app.close()
    with world.ledger() as ledger:
        report = incident_report(ledger.incident(incident))
    for said in ("phase 1: group h1 (m2, m3) begins", "phase 2: group v0 (m0, m2) failed: two identical runs", "replay on groups: "):
        assert said in report


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.release) for part in range(1, PARTS))])
@pytest.mark.lab
def test_killed_after_any_write_the_next_controller_goes_on(make: Callable[..., Any], part: int) -> None:
    whole = make("m2")
    whole.life(TICKS)
    events = whole.events()
    begun = next(i for i, event in enumerate(events, 1) if event.payload.get("action") == "replay")
    over = next(i for i, event in enumerate(events, 1) if i > begun and event.kind == kinds.GENERATION_STARTED)
    for die_at in range(begun + part, over + 2, PARTS):
        world = make("m2")
        world.life(KILLED_TICKS, die_at)
        app = world.life(KILLED_TICKS)
        at = f"killed after event {die_at} ({events[die_at - 1].kind}): {[event.kind for event in world.events()]}"
        assert rungs(world) == ["replay", "evict"] and app.state.barred == {"m2"}, at
        assert not app.state.is_held and fold_job("llm", world.events()).phase == "running", at
        groups = [(event.payload["group"], event.payload["state"]) for event in world.events(kinds.REPLAY)]
        assert len(groups) == len(set(groups)) == 8, at
        generations = [group.generations for phase in record(world).phases.values() for group in phase.groups.values()]
        assert generations == [(2, 2), (3, 3), (4, 4), (5, 5)], at
        assert sum("replay" in event.payload["sources"] for event in world.events(kinds.VERDICT)) == 1, at
        with world.ledger() as ledger:
            assert ledger.open_operations("llm") == [], at
