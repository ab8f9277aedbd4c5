from __future__ import annotations

import threading
from typing import Any

import pytest

from minder.model.clock import FakeClock
from minder.model.decision import Decision
from minder.model.errors import BadInputError, LedgerError
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.timeline import describe


@pytest.fixture
def asked(ledger: Ledger, decision: Decision) -> str:
    """An operator is asked about m2 until second 1600; returns the decision's id."""
    payload = {"decision": decision, "until_s": 1600.0, "on_timeout": "page", "generation": 3, "incidents": ["llm-1"]}
    ledger.append_once(kinds.APPROVAL_ASKED, payload, job="llm", incident="llm-1", operation_id=decision.operation_id)
    return decision.operation_id


def state(ledger: Ledger) -> str:
    return ledger.approvals("llm")[0].state


def test_a_question_keeps_all_that_the_operator_must_know(ledger: Ledger, asked: str, decision: Decision) -> None:
    (found,) = ledger.approvals()
    assert found.decision == decision and (found.job, found.incidents, found.generation) == ("llm", ("llm-1",), 3)
    assert (found.asked_s, found.until_s, found.on_timeout, found.state) == (1000.0, 1600.0, "page", "waiting")
    assert ledger.approvals("other") == []
    assert ledger.history("llm", 1001.0).approvals == (found,)
    assert "whether to evict m2, until 1970-01-01T00:26:40" in describe(ledger.events(kinds=[kinds.APPROVAL_ASKED])[0])


def test_it_is_asked_once_and_answered_once(ledger: Ledger, asked: str, decision: Decision) -> None:
    _, first = ledger.append_once(kinds.APPROVAL_ASKED, {}, job="llm", incident="llm-1", operation_id=asked)
    assert not first and len(ledger.approvals()) == 1
    assert ledger.answer_approval(asked, "rejected", by="alice", reason="we are flashing it").state == "rejected"
    for again in ("approved", "rejected"):
        with pytest.raises(BadInputError, match="was rejected by alice already"):
            ledger.answer_approval(asked, again, by="bob", reason="x")  # type: ignore[arg-type]
    with pytest.raises(LedgerError, match="written by"):
        ledger.append(kinds.APPROVAL_SETTLED, {}, operation_id=asked)


def test_of_many_answers_at_once_one_counts_and_the_others_are_told(ledger: Ledger, asked: str, database: str) -> None:
    outcomes: list[Any] = []

    def say(answer: Any, by: str) -> None:
        with Ledger(database, clock=FakeClock(1001.0), busy_timeout_s=60.0) as own:
            try:
                outcomes.append(own.answer_approval(asked, answer, by=by, reason="x").by)
            except BadInputError as error:
                outcomes.append(str(error))

    threads = [threading.Thread(target=say, args=("approved" if number % 2 else "rejected", f"p{number}")) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [item for item in outcomes if "already" not in item]
    assert len(outcomes) == 4 and ledger.approvals()[0].by == winner


def test_nobody_can_answer_what_is_over(ledger: Ledger, asked: str, clock: FakeClock) -> None:
    with pytest.raises(BadInputError, match=r"no decision .evict-9. waits"):
        ledger.answer_approval("evict-9", "approved", by="alice", reason="x")
    clock.sleep(601.0)
    with pytest.raises(BadInputError, match=r"has expired: no operator answered by 1970-01-01T00:26:40"):
        ledger.answer_approval(asked, "approved", by="alice", reason="x")


@pytest.mark.parametrize(("kind", "why"), [
    (kinds.GENERATION_STARTED, "restarted"), (kinds.JOB_ENDED, "job_ended"), (kinds.JOB_REGISTERED, "job_ended"),
])  # fmt: skip
def test_a_question_ends_with_the_generation_it_was_about(ledger: Ledger, asked: str, kind: str, why: str) -> None:
    ledger.append(kind, {"generation": 4}, job="other")
    assert state(ledger) == "waiting"
    ledger.append(kind, {"generation": 4}, job="llm")
    assert (state(ledger), ledger.approvals()[0].why) == ("expired", why)
    with pytest.raises(BadInputError, match=rf"expired \({why}\)"):
        ledger.answer_approval(asked, "approved", by="alice", reason="x")


def test_an_intent_means_that_it_is_carried_out(ledger: Ledger, asked: str, decision: Decision) -> None:
    ledger.answer_approval(asked, "approved", by="alice", reason="checked")
    assert state(ledger) == "approved"
    ledger.intend(asked, decision, job="llm", incident="llm-1")
    ledger.append(kinds.GENERATION_STARTED, {"generation": 4}, job="llm")
    assert state(ledger) == "carried_out"
    with pytest.raises(BadInputError, match="carried out already"):
        ledger.answer_approval(asked, "rejected", by="bob", reason="x")


def test_a_question_of_a_newer_version_is_left_alone(ledger: Ledger) -> None:
    ledger.append_once(kinds.APPROVAL_ASKED, {"decision": {"odd": 1}}, job="llm", incident="llm-1", operation_id="evict-2")
    assert ledger.approvals() == []
