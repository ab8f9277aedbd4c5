"""What another ladder would have done over the past, with its cost: of recordings' verdicts, and of a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from minder.act.policy.config import PolicyConfig
from minder.model.decision import Decision, Price
from minder.model.evidence import Failure, Verdict
from minder.offline.adoption.rehearsal import (
    RehearsedJob,
    cost_of,
    rehearse_ledger,
    rehearse_recordings,
    rehearse_verdicts,
)
from minder.offline.adoption.rehearsal_words import rehearsal_json, rehearsal_lines, rehearsal_rows
from minder.record.incidents import Ledger, kinds

BEGUN_S = 1_700_000_000.0
JOB = RehearsedJob("llm", tuple(f"m{n}" for n in range(8)), ("s0", "s1"), gpus=64)
LIVE = PolicyConfig(cooldown_s=0.0, breaker_window_s=60.0)


def nan(machine: str, rank: int, after_s: float) -> Verdict:
    time_s = BEGUN_S + after_s
    failure = Failure(time_s - 1.0, machine, (rank,), "nonfinite", text="its own gradient is not finite")
    return Verdict(time_s, "job", "evict", (), "numeric", 0.9, time_s - 5.0, sources=("numeric",), failures=(failure,))


def stall(machine: str, after_s: float, **changes: Any) -> Verdict:
    time_s = BEGUN_S + after_s
    return replace(Verdict(time_s, "machine", "evict", (machine,), "stall", 0.95, time_s - 20.0, sources=("stall",)), **changes)


def test_an_eviction_takes_effect_on_what_follows_in_a_recording() -> None:
    verdicts = [stall("m1", 0.0), stall("m1", 300.0), stall("m2", 900.0), stall("m3", 1800.0)]
    found = rehearse_verdicts(JOB, verdicts, LIVE, "r001")
    assert [(item.now.action, item.now.reason) for item in found] == [
        ("evict", "act"), ("none", "already_barred"), ("evict", "act"), ("page", "no_standby"),
    ]  # fmt: skip
    cost = rehearse_recordings(found, LIVE).now
    assert (cost.evictions, cost.machines_evicted, cost.pages) == (2, 2, 1)
    assert cost.machine_minutes == pytest.approx(2 * 8 * (30.0 + LIVE.assumed_unsaved_s) / 60)


def test_two_ladders_over_the_same_past_differ_where_they_should() -> None:
    past = [nan("m1", 1, 0.0)]
    published = replace(LIVE, ladder={"order": "published"})  # type: ignore[arg-type]
    assert [item.now.rung for item in rehearse_verdicts(JOB, past, LIVE)] == ["trial"]
    assert [item.now.rung for item in rehearse_verdicts(JOB, past, published)] == ["reattempt"]


def test_what_failed_before_in_the_recording_is_remembered() -> None:
    """m1's hang, and the same ranks hang on the standby that took them."""
    follows = rehearse_verdicts(JOB, [stall("m1", 0.0), stall("s0", 600.0)], LIVE)
    assert [item.now.action for item in follows] == ["evict", "restart"] and follows[1].now.trouble == "program"


def test_a_job_that_launchers_run_is_tested_and_climbs_on_as_if_nothing_was_found() -> None:
    found = rehearse_verdicts(replace(JOB, launched=True), [nan("m1", 1, 0.0), nan("m1", 1, 900.0)], LIVE)
    assert [item.now.rung for item in found][:2] == ["diagnose", "trial"]
    rehearsal = rehearse_recordings(found, LIVE, launched=True)
    assert rehearsal.now.diagnoses == 1 and any("1 diagnoses" in line for line in rehearsal_lines(rehearsal))


def test_a_recovery_is_no_decision() -> None:
    assert rehearse_verdicts(JOB, [stall("m1", 0.0, kind="recovered", tier="watch")], LIVE) == []


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """A dry run's past: m1 would have been evicted, and the job was restarted in place for a NaN."""
    with Ledger(tmp_path / "ledger.db") as opened:
        facts = {"machines": list(JOB.machines), "standbys": list(JOB.standbys), "gpus": 64}
        opened.append(kinds.JOB_REGISTERED, facts, job="llm", time_s=BEGUN_S - 100.0)
        placed = {str(rank): machine for rank, machine in enumerate(JOB.machines)}
        opened.append(kinds.GENERATION_STARTED, {"generation": 1, "rank_machine": placed}, job="llm", time_s=BEGUN_S - 99.0)
        for name, action, reason, verdict in (
            ("evict-1", "page", "dry_run", stall("m1", 0.0)),
            ("restart-1", "restart", "act", nan("m2", 2, 600.0)),
        ):
            incident = opened.open_incident(verdict, job="llm", time_s=verdict.time_s)
            decision = Decision(name, verdict.time_s, action, verdict.machines, reason, "", verdict)  # type: ignore[arg-type]
            opened.append(kinds.DECISION, decision, job="llm", incident=incident, operation_id=name, time_s=verdict.time_s)
        yield opened


def test_a_ledgers_decisions_are_taken_again_with_what_they_cost_then(ledger: Ledger) -> None:
    found = rehearse_ledger(ledger.events(), LIVE)
    assert [(item.then.action if item.then else "", item.now.action) for item in found.items] == [("page", "evict"), ("restart", "trial")]
    assert found.then is not None and (found.then.evictions, found.then.restarts, found.then.pages) == (0, 1, 1)
    assert (found.now.evictions, found.now.trials, found.now.restarts) == (1, 1, 0) and found.now.machine_minutes > 0
    assert rehearse_ledger(ledger.events(), LIVE, "other").items == ()


def test_a_restart_costs_what_it_did_then_and_a_machine_goes_once_in_an_incident(tmp_path: Path) -> None:
    """The job was tested for m1 first, which this ladder evicts at once: what the tests led to would never have come."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        facts = {"machines": list(JOB.machines), "standbys": list(JOB.standbys), "gpus": 64}
        ledger.append(kinds.JOB_REGISTERED, facts, job="llm", time_s=BEGUN_S - 100.0)
        verdict = stall("m1", 0.0)
        incident = ledger.open_incident(verdict, job="llm", time_s=verdict.time_s)
        for name, action, seconds, at_s in (
            ("diagnose-1", "diagnose", LIVE.diagnose_limit_s + 12.0, 0.0),
            ("evict-1", "evict", 12.0, 60.0),
        ):
            said = replace(verdict, time_s=verdict.time_s + at_s, since_s=verdict.since_s + at_s)
            decision = Decision(name, said.time_s, action, ("m1",), "act", "", said, price=Price(64 * seconds, 1e6))  # type: ignore[arg-type]
            ledger.append(kinds.DECISION, decision, job="llm", incident=incident, operation_id=name, time_s=said.time_s)
        found = rehearse_ledger(ledger.events(), LIVE)
    assert [item.now.action for item in found.items] == ["evict", "evict"]
    assert (found.now.evictions, found.now.machines_evicted) == (1, 1)
    assert found.now.machine_minutes == pytest.approx(len(JOB.machines) * 12.0 / 60, abs=0.1)
    assert found.then is not None
    assert found.then.machine_minutes == pytest.approx(len(JOB.machines) * (LIVE.diagnose_limit_s + 24.0) / 60, abs=0.1)


def test_an_operation_costs_once(ledger: Ledger) -> None:
    items = rehearse_ledger(ledger.events(), LIVE).items
    assert cost_of([*items, *items], LIVE) == cost_of(items, LIVE)


def test_the_table_the_sentences_and_the_document_say_the_same(ledger: Ledger) -> None:
    found = rehearse_ledger(ledger.events(), LIVE)
    document, rows, lines = rehearsal_json(found), rehearsal_rows(found), rehearsal_lines(found)
    assert [row[5] for row in rows[1:]] == [item["now"]["action"] for item in document["decisions"]] == ["evict", "trial"]
    assert document["decisions"][1]["then"] == {"action": "restart", "rung": "reattempt", "reason": "act"}
    assert lines[0].startswith("This ladder: 1 evictions (1 machines), 1 trials, 0 restarts, 0 pages")
    assert lines[1].startswith("Then: 0 evictions") and any("history stays" in line for line in lines)
