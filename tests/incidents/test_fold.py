from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from minder.model.decision import ActionResult, Decision
from minder.model.errors import BadInputError
from minder.model.evidence import Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, fold_incident, kinds
from minder.record.incidents.brief import brief
from minder.wire.codec import to_json

Event = Callable[..., LedgerEvent]


def test_a_hang_from_the_fault_to_the_first_new_step(ledger: Ledger, recovered_incident: str, verdict: Verdict, decision: Decision) -> None:
    found = ledger.incident(recovered_incident)
    assert (found.id, found.job, found.state, found.closed_by) == ("llm-1", "llm", "closed", "first new step")
    assert (found.verdict, found.machines, found.decision) == (verdict, ("m2",), decision)
    assert (found.evidence, found.against) == (verdict.evidence, verdict.against)
    assert (found.evicted, found.replacements) == (("m2",), ("s1",))
    assert found.captured == ("stacks of m2",)
    assert found.undo == ('minder machine return m2 --note "undoes llm-1"',)
    times = found.timings
    assert (times.time_to_detect_s, times.time_to_decide_s, times.capture_s) == (8.0, 1.0, 1.5)
    assert (times.evict_s, times.restart_s, times.to_first_step_s, times.downtime_s) == (1.0, 2.0, 2.0, 16.0)
    assert (found.step, found.steps_lost) == (41, 1)
    assert found.gpu_seconds_lost == 4 * (16.0 + 0.5)


def test_a_slowdown_loses_time_from_the_moment_of_acting(event: Event, verdict: Verdict) -> None:
    slow = replace(verdict, cause="slowdown", since_s=100.0)
    found = fold_incident(
        [
            event(kinds.VERDICT, to_json(slow), 1000.0),
            event(kinds.INTENT, {"action": "evict", "machines": ["m2"]}, 1010.0, operation_id="op"),
            event(kinds.RESULT, to_json(ActionResult("op", 1011.0, "done", undo="resume node m2")), 1011.0, operation_id="op"),
            event(kinds.FIRST_STEP, {"step": 7, "gpus": 2}, 1020.0),
        ]
    )
    assert found.gpu_seconds_lost == 20.0
    assert found.undo == ("resume node m2", 'minder machine return m2 --note "undoes llm-1"')


def test_the_capture_is_no_part_of_the_eviction_that_waits_for_it(event: Event, verdict: Verdict) -> None:
    """As the controller does it: the intent first, then the evidence, then the end of the workers."""
    phase = {"phase": "capture"}
    found = fold_incident(
        [
            event(kinds.VERDICT, to_json(verdict), 1000.0),
            event(kinds.INTENT, {"action": "evict", "machines": ["m2"]}, 1010.0, operation_id="op"),
            event(kinds.RECOVERY_PHASE, {**phase, "state": "begin"}, 1010.0),
            event(kinds.RECOVERY_PHASE, {**phase, "state": "end"}, 1013.0),
            event(kinds.RESULT, to_json(ActionResult("op", 1014.0, "done")), 1014.0, operation_id="op"),
        ]
    )
    assert (found.timings.capture_s, found.timings.evict_s) == (3.0, 1.0)


def test_each_machine_of_a_group_is_given_back_once_with_a_reason(event: Event, verdict: Verdict) -> None:
    joined = "minder machine return m1; minder machine return m2"
    found = fold_incident(
        [
            event(kinds.VERDICT, to_json(verdict), 1.0),
            event(kinds.INTENT, {"action": "evict", "machines": ["m1", "m2", "m3"]}, 2.0, operation_id="op"),
            event(kinds.RESULT, to_json(ActionResult("op", 3.0, "done", undo=joined)), 3.0, operation_id="op"),
            event(kinds.RESULT, to_json(ActionResult("op", 3.0, "done", undo="minder machine return m3 --config job.toml")), 3.0),
        ]
    )
    commands = [f"minder machine return {machine}" for machine in ("m1", "m2", "m3 --config job.toml")]
    assert found.undo == tuple(f'{command} --note "undoes llm-1"' for command in commands)


def test_states_follow_the_events(event: Event, verdict: Verdict) -> None:
    events = [event(kinds.VERDICT, to_json(verdict), 1.0)]
    assert fold_incident(events).state == "open"
    events.append(event(kinds.INTENT, {"action": "end-workers", "machines": ["m2"]}, 2.0, operation_id="op/end"))
    assert fold_incident(events).state == "open"
    events.append(event(kinds.INTENT, {"action": "evict", "machines": ["m2"]}, 2.0, operation_id="op"))
    assert fold_incident(events).state == "acting"
    events.append(event(kinds.AMBIGUOUS, {"operation_id": "op", "time_s": 3.0, "outcome": "ambiguous"}, 3.0, operation_id="op"))
    assert fold_incident(events).state == "acting"
    assert fold_incident(events).evicted == ()
    events.append(event(kinds.RESULT, {"operation_id": "op", "time_s": 3.0, "outcome": "done"}, 3.0, operation_id="op"))
    assert fold_incident(events).state == "recovering"
    events.append(event(kinds.FIRST_STEP, {"step": 3}, 4.0))
    closed = fold_incident(events)
    assert (closed.state, closed.closed_s, closed.gpu_seconds_lost) == ("closed", 4.0, None)


def test_recovering_by_itself_closes_only_what_nobody_acted_on(event: Event, verdict: Verdict) -> None:
    recovered = to_json(replace(verdict, kind="recovered"))
    alone = fold_incident([event(kinds.VERDICT, to_json(verdict), 1.0), event(kinds.VERDICT, recovered, 5.0)])
    assert (alone.state, alone.closed_s, alone.closed_by) == ("closed", 5.0, "recovered by itself")
    assert alone.verdict == verdict
    acted = fold_incident(
        [
            event(kinds.VERDICT, to_json(verdict), 1.0),
            event(kinds.INTENT, {"action": "evict", "machines": ["m2"]}, 2.0, operation_id="op"),
            event(kinds.VERDICT, recovered, 5.0),
        ]
    )
    assert acted.state == "acting"


def test_an_operator_closes_an_incident(event: Event, verdict: Verdict) -> None:
    found = fold_incident([event(kinds.VERDICT, to_json(verdict), 1.0), event(kinds.CLOSED, {"by": "ann"}, 9.0)])
    assert (found.state, found.closed_by) == ("closed", "ann")


def test_a_failed_eviction_evicted_nobody_and_has_nothing_to_undo(event: Event, verdict: Verdict) -> None:
    found = fold_incident(
        [
            event(kinds.VERDICT, to_json(verdict), 1.0),
            event(kinds.INTENT, {"action": "evict", "machines": ["m2"]}, 2.0, operation_id="op"),
            event(kinds.RESULT, {"operation_id": "op", "time_s": 3.0, "outcome": "failed", "undo": "x"}, 3.0, operation_id="op"),
        ]
    )
    assert (found.evicted, found.undo) == ((), ())


def test_a_machine_that_was_given_back_needs_no_undo(ledger: Ledger, recovered_incident: str) -> None:
    ledger.append(kinds.UNBARRED, {"machine": "m2"}, incident=recovered_incident)
    ledger.append(kinds.OUTCOME, {"machine": "m2", "outcome": "no-fault-found"}, job="llm", incident=recovered_incident)
    found = ledger.incident(recovered_incident)
    assert found.undo == ()
    assert found.outcomes == {"m2": "no-fault-found"}


def test_events_of_a_newer_version_do_not_break_an_incident(event: Event, verdict: Verdict) -> None:
    found = fold_incident(
        [
            event(kinds.VERDICT, to_json(verdict), 1.0),
            event(kinds.DECISION, {"action": "reboot", "new_field": 1}, 2.0),
            event("quarantined", {"machine": "m2"}, 3.0),
        ]
    )
    assert found.decisions == ()
    assert [line for _, line in found.timeline][1:] == ["decision reboot: the job (None)", "quarantined: m2"]


def test_phases_that_repeat_add_up(event: Event, verdict: Verdict) -> None:
    events = [event(kinds.VERDICT, to_json(verdict), 0.0)]
    for begin_s, end_s in ((1.0, 2.0), (5.0, 7.5)):
        events.append(event(kinds.RECOVERY_PHASE, {"phase": "restart", "state": "begin"}, begin_s))
        events.append(event(kinds.RECOVERY_PHASE, {"phase": "restart", "state": "end"}, end_s))
    times = fold_incident(events).timings
    assert (times.restart_s, times.restarted_s) == (3.5, 7.5)


def test_no_events_are_no_incident() -> None:
    with pytest.raises(BadInputError):
        fold_incident([])


def _steps(event: Event, verdict: Verdict, decision: Decision, at: str) -> list[LedgerEvent]:
    """The job restarts in place, since the eviction of m2 was stopped; a person is paged for m2 at that time."""
    own_word = replace(verdict, cause="explicit")
    page = replace(decision, operation_id="page-1", action="page", reason="shared_machine", verdict=own_word)
    asked = event(kinds.DECISION, to_json(page), 1005.0)
    return [
        event(kinds.VERDICT, to_json(verdict), 1000.0),
        *([asked] if at == "before the restart" else []),
        event(kinds.DECISION, to_json(replace(decision, action="restart", machines=(), operation_id="op")), 1001.0),
        event(kinds.INTENT, {"action": "restart", "machines": []}, 1001.0, operation_id="op"),
        event(kinds.RESULT, to_json(ActionResult("op", 1004.0, "done")), 1004.0, operation_id="op"),
        *([asked] if at == "before the first step" else []),
        event(kinds.FIRST_STEP, {"step": 7, "gpus": 2}, 1006.0),
        *([asked] if at == "after it" else []),
    ]


@pytest.mark.parametrize("at", ["before the first step", "after it"])
def test_a_machine_that_waits_for_a_person_keeps_its_incident_open(event: Event, verdict: Verdict, decision: Decision, at: str) -> None:
    events = _steps(event, verdict, decision, at)
    found = fold_incident(events)
    assert (found.state, found.closed_s, found.timings.first_step_s) == ("open", None, 1006.0)
    assert found.decision is not None and found.decision.reason == "shared_machine"
    assert "Look at m2: still in the job." in brief(found).morning
    ended = fold_incident([*events, event(kinds.VERDICT, to_json(replace(verdict, kind="recovered", tier="watch")), 1300.0)])
    assert (ended.state, ended.closed_by) == ("closed", "recovered by itself")
    assert fold_incident([*events, event(kinds.CLOSED, {"by": "the end of the job"}, 1400.0)]).closed_by == "the end of the job"


def test_what_a_page_asked_for_and_a_restart_then_did_is_over(event: Event, verdict: Verdict, decision: Decision) -> None:
    assert fold_incident(_steps(event, verdict, decision, "before the restart")).closed_by == "first new step"


def test_a_page_for_the_machine_that_was_evicted_keeps_nothing_open(event: Event, verdict: Verdict, decision: Decision) -> None:
    events = [
        event(kinds.VERDICT, to_json(verdict), 1000.0),
        event(kinds.INTENT, {"action": "evict", "machines": ["m2"]}, 1001.0, operation_id="op"),
        event(kinds.DECISION, to_json(replace(decision, action="page", reason="in_progress")), 1003.0),
        event(kinds.RESULT, to_json(ActionResult("op", 1004.0, "done")), 1004.0, operation_id="op"),
        event(kinds.FIRST_STEP, {"step": 7, "gpus": 2}, 1006.0),
    ]
    assert fold_incident(events).state == "closed"
