"""No incident outlives its job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from minder.model.evidence import Verdict
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.brief import brief
from minder.record.incidents.endings import begin_run, end_run
from minder.record.incidents.outlook import outlook

VERDICT = Verdict(10.0, "machine", "page", ("m1",), "slowdown", 0.9, 5.0)


@pytest.fixture
def ledger() -> Ledger:
    """A run of llm in which m1 was accused and nothing was done; the same of another job."""
    ledger = Ledger(":memory:")
    begin_run(ledger, "llm", {"machines": ["m1", "m2"]})
    for job in ("llm", "other"):
        ledger.open_incident(VERDICT, job=job)
    return ledger


@pytest.mark.parametrize(("outcome", "by"), [("finished", "the end of the job"), ("failed", "giving the job up")])
def test_the_end_of_a_run_ends_its_incidents_and_no_others(ledger: Ledger, outcome: str, by: str) -> None:
    end_run(ledger, "llm", outcome, "why")  # type: ignore[arg-type]
    found = ledger.incident("llm-1")
    assert (found.state, found.closed_by) == ("closed", by) and ledger.incident("other-1").state == "open"
    assert not outlook(found).waits_for_person and "goes on" not in outlook(found).what
    assert [event.payload["outcome"] for event in ledger.events(kinds=[kinds.JOB_ENDED])] == [outcome]


def test_a_job_whose_end_was_not_seen_leaves_nothing_open_for_the_next_run(ledger: Ledger) -> None:
    begin_run(ledger, "llm", {"machines": ["m1", "m2"]})
    assert ledger.incident("llm-1").closed_by == "the next run of the job: the one before was gone"
    assert ledger.open_incident(VERDICT, job="llm") == "llm-2"


def test_an_incident_that_ended_before_is_not_ended_again(ledger: Ledger) -> None:
    ledger.append(kinds.CLOSED, {"by": "ann"}, job="llm", incident="llm-1")
    end_run(ledger, "llm", "finished")
    assert ledger.incident("llm-1").closed_by == "ann" and len(ledger.events(incident="llm-1", kinds=[kinds.CLOSED])) == 1


def test_the_morning_after_a_job_that_was_given_up_is_not_nothing(ledger: Ledger) -> None:
    end_run(ledger, "llm", "failed", "why")
    assert brief(ledger.incident("llm-1")).morning == "The job was given up: mend what ended it, look at m1, then start it again."
    end_run(ledger, "other", "finished")
    assert brief(ledger.incident("other-1")).morning == "Nothing is left to do."


def test_a_machine_that_was_surely_accused_and_stayed_is_looked_at_when_it_is_over(ledger: Ledger) -> None:
    incident = ledger.open_incident(replace(VERDICT, tier="evict"), job="llm")
    end_run(ledger, "llm", "finished")
    assert brief(ledger.incident(incident)).morning == "Look at m1: accused, and still used."
    ledger.append(kinds.OUTCOME, {"outcome": "no-fault-found", "machine": "m1"}, job="llm", incident=incident)
    assert brief(ledger.incident(incident)).morning == "Nothing is left to do."
