"""The rung `diagnose`, live: the job is suspended, its machines are tested, and it goes on, with or without one of them; whenever the
controller dies, the next one goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from held_job import acted, fails, result_of, rungs, until

from minder.act.controller.state import fold_job
from minder.model.errors import LedgerError
from minder.model.probes import Judged, ProbeJudgement, ProbeResult
from minder.record.incidents import kinds
from minder.record.incidents.ascent import ASCENT_KINDS, fold_ascent
from minder.record.incidents.outlook import outlook
from minder.record.incidents.probes import probes_payload
from minder.record.incidents.report import incident_report

TICKS = 16
PARTS = 5  # of the places to die at
KILLED_TICKS = 10  # of a life that a kill ends, and of the one after it


@pytest.fixture
def make(new_world: Callable[[], Any]) -> Callable[..., Any]:
    """make(sort="nonfinite"): a job whose launchers run probes; rank 1 fails as long as m1 runs it."""

    def build(sort: str = "crash") -> Any:
        world = new_world()
        world.fleet.offers = ["probes"]
        world.script = fails(world, sort)
        return world

    return build


def probed(world: Any, why: str = "diagnose") -> list[Any]:
    return [event for event in world.events(kinds.PROBES) if event.payload["why"] == why]


def test_the_second_unknown_failure_is_diagnosed_and_the_climb_goes_on_where_all_tests_passed(make: Callable[..., Any]) -> None:
    world = make()
    app = world.life(TICKS)
    assert rungs(world) == ["reattempt", "diagnose", "trial"]
    assert result_of(world)["detail"] == "no fault found by " + ", ".join(sorted(PASSING)) + "; not judged: links"
    trial = acted(world)[-1]
    assert next(item.detail for item in trial.passed_over if item.rung == "diagnose").endswith("; not judged: links")
    assert (app.state.phase, app.state.rank_machine[1], app.state.generation) == ("running", "s0", 3)
    phases = [(event.payload["phase"], event.payload["state"]) for event in world.events(kinds.RECOVERY_PHASE)]
    began = phases.index(("suspend", "begin"))
    assert phases[began : began + 4] == [(name, state) for name in ("suspend", "diagnose") for state in ("begin", "end")]


PASSING = ("clock", "space", "device_health", "dcgm", "memory", "loopback", "gemm", "all_to_all", "disk")


def test_a_nan_is_diagnosed_at_once_and_with_alignment(make: Callable[..., Any]) -> None:
    world = make("nonfinite")
    world.life(TICKS)
    assert rungs(world)[0] == "diagnose"
    tested = probed(world)
    assert {event.payload["machine"] for event in tested} == {"m0", "m1", "m2", "m3"}
    assert "alignment" in [item["probe"] for item in tested[0].payload["results"]]


@pytest.mark.parametrize(
    ("aligned_since", "verdict", "due"),
    [
        ((), "pass", True),
        (("m0", "m1", "m2", "m3"), "pass", False),
        (("m3", "s0"), "pass", True),
        (("m0", "m1", "m2", "m3"), "not_judged", True),
    ],
    ids=["none", "all", "some", "not judged"],
)
def test_a_spike_makes_alignment_due_at_the_next_stop(
    make: Callable[..., Any], aligned_since: tuple[str, ...], verdict: Judged, due: bool
) -> None:
    world = make()
    app = world.app()
    app.begin()
    spiked = {"kind": "machine", "tier": "page", "cause": "numeric", "machines": ["m3"], "sources": ["spikes"]}
    app.ledger.append(kinds.VERDICT, spiked, job="llm")
    for machine in aligned_since:
        judged = ProbeJudgement(machine, "alignment", verdict, "")
        payload = probes_payload(machine, [ProbeResult("alignment", 1, "measured")], [judged], by="ann", why="test")
        app.ledger.append(kinds.PROBES, payload, job="llm")
    world.tick(app, TICKS)
    app.close()
    tested = [item["probe"] for event in probed(world) for item in event.payload["results"]]
    assert "gemm" in tested and ("alignment" in tested) is due


def test_a_machine_that_a_probe_finds_faulty_goes_with_the_probe_as_evidence(make: Callable[..., Any]) -> None:
    world = make()
    world.fleet.launchers["m2"].faults["disk"] = "/scratch: the disk is full"
    app = world.life(TICKS)
    assert rungs(world) == ["reattempt", "diagnose", "evict"] and app.state.barred == {"m2"}
    evict = acted(world)[2]
    assert (evict.machines, evict.trouble, evict.verdict.sources) == (("m2",), "machine", ("probes",))
    assert "the disk is full" in evict.verdict.evidence[0].message and evict.verdict.evidence[0].source == "probe"
    incidents = {event.incident for event in world.events(kinds.INTENT)}
    assert len({event.incident for event in world.events(kinds.INTENT)[1:3]}) == 1, incidents
    assert "m2 fails disk: /scratch: the disk is full" in result_of(world)["detail"]


def test_a_fault_that_every_machine_shows_evicts_none(make: Callable[..., Any]) -> None:
    world = make()
    for name in ("m0", "m2"):
        world.fleet.launchers[name].faults["disk"] = "the quota is used up"
    app = world.life(TICKS)
    assert app.state.barred == set() and rungs(world) == ["reattempt", "diagnose", "trial"]
    assert "disk fails on 2 of 4 machines: no machine's own" in result_of(world)["detail"]


@pytest.mark.parametrize("stays", [True, False])
def test_what_only_a_comparison_shows_is_measured_twice(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, stays: bool) -> None:
    monkeypatch.setattr("minder.diagnose.diagnostics.judgement.LEAST_PEERS", 3)
    world = make()
    launcher = world.fleet.launchers["m2"]
    launcher.faults["links"] = "compared"
    app = world.app()
    app.begin()
    for _ in range(TICKS):
        world.tick(app)
        if not stays and any(operation.endswith("/1") and count >= 2 for operation, count in launcher.probed.items()):
            launcher.faults.clear()
    app.close()
    assert app.state.barred == ({"m2"} if stays else set())
    assert {event.payload["round"] for event in probed(world)} == {1, 2}
    if not stays:
        assert "links of m2: a fault that a second look did not show" in result_of(world)["detail"]


def test_a_launcher_that_never_answers_is_not_tested_and_the_job_goes_on(make: Callable[..., Any]) -> None:
    """By the time limit at the latest: what is not judged is said aloud."""
    world = make()
    world.policy = replace(world.policy, diagnose_limit_s=10.0)
    world.fleet.launchers["m3"].probes_take = 1000
    app = world.life(30)
    assert rungs(world) == ["reattempt", "diagnose", "trial"] and app.state.phase == "running"
    assert "all tests passed" not in result_of(world)["detail"] and app.state.barred == set()
    world = make()
    app = world.app()
    app.begin()
    until(world, app, lambda: app.state.phase == "suspended")
    world.fleet.launchers["m3"].silent = True
    until(world, app, lambda: bool(world.events(kinds.RESULT)[1:]), 60)
    app.close()
    assert "not tested: m3 (does not answer)" in result_of(world)["detail"]


@pytest.mark.parametrize(
    ("sort", "take", "tested"),
    [("crash", 15, False), ("nonfinite", 15, True), ("nonfinite", 1000, False)],
    ids=["crash", "numbers in doubt", "to the end of patience"],
)
def test_numbers_that_are_in_doubt_have_twice_the_time(make: Callable[..., Any], sort: str, take: int, tested: bool) -> None:
    world = make(sort)
    world.policy = replace(world.policy, diagnose_limit_s=10.0)
    world.fleet.launchers["m3"].probes_take = take
    app = world.life(40)
    assert app.state.phase == "running" and app.state.barred == set()
    detail = result_of(world)["detail"]
    assert ("disk on 1 of 4" in detail) is not tested and ("memory, space" in detail) is tested, detail


def test_a_fault_that_was_seen_once_has_twice_the_time_for_its_second_look(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minder.diagnose.diagnostics.judgement.LEAST_PEERS", 3)
    world = make()
    world.policy = replace(world.policy, diagnose_limit_s=10.0)
    for launcher in world.fleet.launchers.values():
        launcher.probes_take = 7  # two rounds take longer than the limit
    world.fleet.launchers["m2"].faults["links"] = "compared"
    assert world.life(40).state.barred == {"m2"}


@pytest.mark.parametrize("how", ["pause", "maintenance", "order"])
def test_a_person_ends_the_tests_and_the_job_is_resumed(make: Callable[..., Any], how: str) -> None:
    world = make()
    for launcher in world.fleet.launchers.values():
        launcher.probes_take = 1000
    app = world.app()
    app.begin()
    until(world, app, lambda: app.state.phase == "diagnosing")
    generation, now_s = app.state.generation, world.clock.now_s()
    if how == "pause":
        app.ledger.append(kinds.PAUSE, {"scope": "all", "target": None, "until_s": now_s + 500, "reason": "a look"})
    elif how == "maintenance":
        window = {"id": "w1", "from_s": now_s, "until_s": now_s + 500, "machines": ["m2"], "racks": [], "jobs": [], "reason": "fans"}
        app.ledger.append(kinds.MAINTENANCE, window | {"by": "ann"})
    else:
        app.ledger.append(kinds.RESTART_ASKED, {"reason": "now", "by": "ann"}, job="llm")
    world.tick(app, 2)
    app.close()
    assert not app.state.is_held and app.state.generation == generation + 1
    assert result_of(world)["outcome"] == "failed" and "ended before its time" in result_of(world)["detail"]
    if how != "order":
        assert rungs(world) == ["reattempt", "diagnose"], "the job is started again by the diagnosis itself: nothing else is done"
        with world.ledger() as ledger:
            history = ledger.history("llm")
        assert history.restarts == 2, "its own restart counts"


def test_an_operator_is_asked_about_a_machine_that_failed_its_test_while_the_job_runs_again(make: Callable[..., Any]) -> None:
    world = make()
    world.policy = replace(world.policy, approval="required")
    world.fleet.launchers["m2"].faults["disk"] = "the disk is full"
    app = world.app()
    app.begin()
    until(world, app, lambda: bool(world.events(kinds.APPROVAL_ASKED)), 30)
    assert not app.state.is_held and app.state.barred == set()
    (asked,) = world.events(kinds.APPROVAL_ASKED)
    assert asked.payload["generation"] == app.state.generation and asked.payload["decision"]["machines"] == ["m2"]
    app.ledger.answer_approval(str(asked.operation_id), "approved", by="ann", reason="so it is")
    until(world, app, lambda: app.state.barred == {"m2"})
    app.close()


def test_in_a_dry_run_it_only_says_what_it_would_do(make: Callable[..., Any]) -> None:
    world = make()
    world.policy, world.workers_dead = replace(world.policy, dry_run=True), True
    app = world.life(TICKS)
    said = [event.payload["detail"] for event in world.events(kinds.DECISION) if event.payload["reason"] == "dry_run"]
    assert any("dry run: would diagnose llm: test its 4 machines while it stands" in text for text in said)
    assert "diagnose" not in rungs(world) and app.state.generation > 1, "dead workers are started again all the same"


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.release) for part in range(1, PARTS))])
@pytest.mark.parametrize("fault", ["", "disk"])
@pytest.mark.lab
def test_killed_after_any_write_of_the_climb_the_next_controller_goes_on(make: Callable[..., Any], fault: str, part: int) -> None:
    def play() -> Any:
        world = make()
        if fault:
            world.fleet.launchers["m2"].faults[fault] = "the disk is full"
        return world

    whole = play()
    whole.life(TICKS)
    written = [event.kind for event in whole.events()]
    wanted = rungs(whole)[:3]
    assert wanted == ["reattempt", "diagnose", "evict" if fault else "trial"]
    begun = next(i for i, event in enumerate(whole.events(), 1) if event.payload.get("action") == "diagnose")
    over = next(i for i, kind in enumerate(written, 1) if i > begun and kind == kinds.GENERATION_STARTED)
    for die_at in range(begun + part, over + 2, PARTS):
        world = play()
        world.life(KILLED_TICKS, die_at)
        app = world.life(KILLED_TICKS)
        at = f"killed after event {die_at} ({written[die_at - 1]}): {[event.kind for event in world.events()]}"
        assert rungs(world)[:3] == wanted, at
        assert not app.state.is_held and app.state.phase == "running", at
        assert fold_job("llm", world.events()).phase == "running", at
        started = [event.operation_id for event in world.events(kinds.GENERATION_STARTED)]
        assert len(started) == len(set(started)), at
        tested = [(event.payload["machine"], event.operation_id, event.payload["round"]) for event in probed(world)]
        assert len(tested) == len(set(tested)) and tested, at
        assert sum("probes" in event.payload["sources"] for event in world.events(kinds.VERDICT)) == bool(fault), at
        with world.ledger() as ledger:
            assert ledger.open_operations("llm") == [], at


def test_it_is_passed_over_where_a_launcher_does_not_run_probes(make: Callable[..., Any]) -> None:
    world = make()
    world.fleet.offers = []
    world.life(TICKS)
    assert rungs(world) == ["reattempt", "trial"]
    assert ("diagnose", "not_available") in [(item.rung, item.reason) for item in acted(world)[1].passed_over]


def test_a_fault_of_ours_keeps_no_job_standing(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    world.policy = replace(world.policy, diagnose_limit_s=5.0)

    def broken(*unused: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("minder.act.controller.diagnosis.diagnosing.Diagnosing._ask", broken)
    monkeypatch.setattr("minder.act.controller.diagnosis.diagnosing.Diagnosing._end", broken)
    app = world.life(60)
    assert app.state.phase == "running" and "could not be brought to an end" in result_of(world)["detail"]


def test_a_ledger_that_fails_just_when_it_begins_keeps_no_job_standing(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    world = make()
    app = world.app()
    app.begin()
    until(world, app, lambda: rungs(world) == ["reattempt"])
    real, failures = app.recovery._phase, iter([True])

    def full(phase: str, *rest: Any) -> None:
        if phase == "suspend" and next(failures, False):
            raise LedgerError("the disk is full")
        real(phase, *rest)

    monkeypatch.setattr(app.recovery, "_phase", full)
    for _ in range(TICKS):
        world.fleet.advance()
        world.clock.sleep(1.0)
        app.controller._step_or_wait()
    app.close()
    assert rungs(world) == ["reattempt", "diagnose", "trial"] and app.state.phase == "running"


def test_the_incident_says_what_was_tested_what_was_found_and_how_long_the_job_stood(make: Callable[..., Any]) -> None:
    world = make()
    world.fleet.launchers["m2"].faults["disk"] = "/scratch: the disk is full"
    app = world.app()
    app.begin()
    until(world, app, lambda: app.state.phase == "diagnosing")
    incident = next(str(event.incident) for event in world.events(kinds.INTENT) if event.payload["action"] == "diagnose")
    with world.ledger() as ledger:
        assert outlook(ledger.incident(incident)).what.startswith("The job stands while its machines are tested.")
    world.tick(app, TICKS)
    app.close()
    with world.ledger() as ledger:
        report = incident_report(ledger.incident(incident))
        steps = fold_ascent(ledger.events(incident=incident, kinds=ASCENT_KINDS))
    for said in (
        "its machines are tested: links, clock",
        "the tests are over",
        "test all machines: ",
        "m2 fails disk: /scratch: the disk is full",
    ):
        assert said in report
    assert "m2: disk fail: /scratch: the disk is full (probe" in report
    climbed = [(step.rung, step.outcome) for step in steps if step.state == "climbed"]
    assert [rung for rung, _ in climbed] == ["diagnose", "evict"] and "m2 fails disk" in climbed[0][1]
    assert "the job stepped again" in climbed[1][1]
