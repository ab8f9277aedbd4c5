from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from minder.model.decision import Decision, PassedOver
from minder.model.evidence import Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import Ledger, fold_incident, kinds
from minder.record.incidents.brief import place_command
from minder.record.incidents.report import incident_json, incident_report, incident_rows


def test_the_report_answers_what_a_person_asks_at_night(ledger: Ledger, recovered_incident: str) -> None:
    text = incident_report(ledger.incident(recovered_incident))
    for answer in (
        "Incident llm-1: m2 stands still (evict (high confidence), confidence 0.98)",
        "m2: cpu_usage_ratio is 0.01, expected 0.93 (telemetry, since 1970-01-01T00:16:42.000Z)",
        "m2: its agent answers (signals)",
        "stacks of m2",
        "evict m2 (act): every stage passed",
        "in their place: s1",
        "price: 100 GPU-s by acting, 2000 GPU-s by waiting",
        "evict-1: done, workers ended",
        "Now: m2 is out; s1 took over. It is over, by first new step.",
        "In the morning: Examine m2, then say what was found: minder machine outcome m2 confirmed (or no-fault-found).",
        'Undo: minder machine return m2 --note "undoes llm-1"\n  it lets m2 work again: it waits as a standby',
        "minder machine outcome m2 confirmed",
        "detect: 8.0 s",
        "downtime in all: 16.0 s",
        "steps done twice: 1",
        "GPU-seconds lost: 66",
        "00:16:58.000     +16.0 s  first new step: 41, resumed from checkpoint 40",
    ):
        assert answer in text
    order = ["Now:", "In the morning:", "Undo:", "Evidence for", "Evidence against", "Captured", "Decision", "Done", "Timeline"]
    assert [text.index(title) for title in order] == sorted(text.index(title) for title in order)


def test_commands_work_where_the_reader_is(ledger: Ledger, recovered_incident: str) -> None:
    found, place = ledger.incident(recovered_incident), partial(place_command, server="https://minder.example.org")
    text = incident_report(found, place=place)
    assert 'Undo: minder --server https://minder.example.org machine return m2 --note "undoes llm-1"\n' in text
    assert "minder --server https://minder.example.org machine outcome m2 confirmed" in text
    assert "\n  stage " not in text and "\n  stage " in incident_report(found, stages=True)


def test_a_machine_that_was_given_back_leaves_nothing_to_undo(ledger: Ledger, recovered_incident: str) -> None:
    ledger.append(kinds.UNBARRED, {"machine": "m2"}, job="llm", incident=recovered_incident)
    assert "Undo: Nothing is left that could be undone.\n" in incident_report(ledger.incident(recovered_incident))


def test_an_incident_without_anything_is_still_readable(event: Callable[..., LedgerEvent]) -> None:
    text = incident_report(fold_incident([event(kinds.NOTE, {"text": "somebody looked"}, 5.0)]))
    assert "no verdict is recorded" in text and "Nothing was done that could be undone." in text and "somebody looked" in text


def test_the_document_is_json_with_durations_and_iso_times(ledger: Ledger, recovered_incident: str) -> None:
    document = json.loads(json.dumps(incident_json(ledger.incident(recovered_incident)), allow_nan=False))
    assert document["opened"] == "1970-01-01T00:16:50.000Z"
    assert document["durations"]["downtime_s"] == 16.0
    assert document["verdict"]["machines"] == ["m2"]
    assert document["timeline"][0] == {
        "time": "1970-01-01T00:16:50.000Z",
        "what": "m2 stands still: evict (high confidence), confidence 0.98",
    }


def test_what_is_left_to_a_person_stands_beside_the_restart(ledger: Ledger, verdict: Verdict, decision: Decision) -> None:
    """The machine may not be evicted, the job's dead workers are started again: the report says both, and who else is on the machine."""
    incident = ledger.open_incident(verdict, job="llm", time_s=1010.0)
    page = replace(decision, action="page", reason="shared_machine", detail="ads would die too", jobs_affected=("llm", "ads"))
    ledger.append(kinds.DECISION, page, job="llm", incident=incident, operation_id=page.operation_id)
    text = incident_report(ledger.incident(incident))
    assert "page m2 (shared_machine): ads would die too" in text and "Left to a person" not in text
    restart = replace(decision, operation_id="r-1", action="restart", machines=(), replacements=(), detail="restart in place")
    ledger.append(kinds.DECISION, restart, job="llm", incident=incident, operation_id=restart.operation_id)
    text = incident_report(ledger.incident(incident))
    assert "restart (act): restart in place" in text
    assert "Left to a person\n  m2: ads would die too (shared_machine)\n  jobs affected: llm, ads\n" in text


def test_rows_are_newest_first(ledger: Ledger, recovered_incident: str) -> None:
    ledger.append(kinds.NOTE, {"text": "x"}, job="llm", incident="llm-2", time_s=2000.0)
    header, newest, oldest = incident_rows(ledger.incidents())
    assert (header[0], newest[0], oldest[0]) == ("incident", "llm-2", "llm-1")
    assert oldest[3:] == ("closed", "m2", "stall", "evict", "16.0 s", "-")


def test_the_decision_says_its_rung_and_what_was_passed_over(ledger: Ledger, verdict: Verdict, decision: Decision) -> None:
    incident = ledger.open_incident(verdict, job="llm")
    passed = (PassedOver("diagnose", "not_available", "not here"), PassedOver("trial", "no_trial", "ranks are fixed"))
    placed = replace(decision, rung="page", trouble="unknown", passed_over=passed)
    ledger.append(kinds.DECISION, placed, job="llm", incident=incident, operation_id=placed.operation_id)
    line = "rung: page, for a trouble of kind unknown; passed over: diagnose (not available), trial (no trial)"
    assert line in incident_report(ledger.incident(incident))
