"""Quick probes beside a restart in place: they never hold it up, and what they find is read by the next decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from minder.act.controller.diagnosis.beside import quick_probes
from minder.edge.probes.contract import find_programs
from minder.model.decision import Decision
from minder.model.evidence import Failure
from minder.record.incidents import kinds
from minder.record.incidents.ascent import ASCENT_KINDS, fold_ascent
from minder.wire.codec import from_json

TICKS = 12


@pytest.fixture
def failing(world: Any) -> Any:
    """Rank 1 on m1 fails once, for a reason that is not known; launchers and agents run probes."""

    def script(observation: Any) -> list[Any]:
        job = observation.job
        if job.phase != "running" or job.generation != 1:
            return []
        failure = Failure(job.generation_start_s, "m1", (1,), "crash", text="ended by SIGKILL")
        return [replace(world.accuse(kind="job"), since_s=job.generation_start_s, sources=("crash",), failures=(failure,))]

    world.script, world.fleet.offers = script, ["probes"]
    return world


def decisions(world: Any) -> list[Decision]:
    return [from_json(Decision, event.payload["decision"]) for event in world.events(kinds.INTENT)]


def test_only_probes_that_disturb_nothing_run_beside_a_job() -> None:
    programs = find_programs()
    assert quick_probes() == ("links", "clock", "space", "device_health")
    assert not any(programs[name].probe.disturbs for name in quick_probes())


def test_the_machine_that_failed_is_probed_after_the_restart_was_ordered_and_the_incident_has_the_results(failing: Any) -> None:
    app = failing.life(TICKS)
    (restart,) = decisions(failing)
    assert (restart.action, restart.beside) == ("restart", ("probes",)) and app.state.generation == 2
    (found,) = failing.events(kinds.PROBES)
    assert (found.payload["machine"], found.payload["why"], found.operation_id) == ("m1", "beside", restart.operation_id)
    (started,) = [event for event in failing.events(kinds.GENERATION_STARTED) if event.operation_id == restart.operation_id]
    assert started.id < found.id
    with failing.ledger() as ledger:
        steps = fold_ascent(ledger.events(incident=found.incident, kinds=ASCENT_KINDS))
    (climbed,) = [step for step in steps if step.state == "climbed"]
    assert "probes beside it on m1: clock, space, device_health pass; links not judged" in climbed.outcome


def test_a_fault_by_a_probes_own_word_is_a_verdict_that_the_next_decision_reads(failing: Any) -> None:
    failing.fleet.launchers["m1"].faults["space"] = "/scratch: the disk is full"
    app = failing.life(TICKS)
    _, evict = decisions(failing)
    assert (evict.action, evict.machines, evict.verdict.sources) == ("evict", ("m1",), ("probes",))
    assert "the disk is full" in evict.verdict.evidence[0].message
    assert app.state.rank_machine[1] == "s0" and app.state.phase == "running"
    assert {event.incident for event in failing.events(kinds.INTENT)} == {failing.events(kinds.INTENT)[0].incident}


@pytest.mark.parametrize("seconds", [3.0, 10.0])
def test_each_probe_has_the_time_that_the_rung_gives(failing: Any, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    rung = {"rung": "reattempt", "on": ["unknown"], "beside": ["probes"], "beside_s": seconds}
    failing.policy = replace(failing.policy, ladder={"rungs": [rung]})
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(failing.fleet, "probes", lambda bodies, *unused: asked.extend(bodies.values()) or {})
    failing.life(TICKS)
    limits = {item["id"]: item["limit_s"] for item in asked[0]["probes"]}
    assert limits == {name: min(program.probe.limit_s, seconds) for name, program in find_programs(quick_probes()).items()}


def test_what_a_comparison_shows_beside_a_restart_is_no_verdict(failing: Any) -> None:
    failing.fleet.launchers["m1"].faults["links"] = "compared"
    app = failing.life(TICKS)
    assert len(decisions(failing)) == 1 and app.state.barred == set()


def test_an_agent_that_does_not_answer_says_nothing(failing: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(failing.fleet), "_probe", lambda *unused: {"state": "refused", "detail": "another test", "results": []})
    app = failing.life(30)
    assert failing.events(kinds.PROBES) == [] and app.state.phase == "running" and len(decisions(failing)) == 1


def test_it_is_passed_over_where_probes_are_not_offered(failing: Any, new_world: Callable[[], Any]) -> None:
    failing.fleet.offers = []
    failing.life(TICKS)
    (restart,) = decisions(failing)
    assert restart.beside == () and failing.events(kinds.PROBES) == []
    assert ("probes", "not_available") in [(item.rung, item.reason) for item in restart.passed_over]
