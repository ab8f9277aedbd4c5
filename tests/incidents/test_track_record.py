"""Five figures of how well minder did: what is known, and what is not, which never counts as right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.model.decision import ActionResult
from minder.model.share import Share
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.track_record import TRACK_KINDS, WATCHED_S, TrackRecord, TrackRecordFold

DAY_S = 86_400.0


class Past:
    """A job's ledger, written as a controller writes it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def write(self, kind: str, time_s: float, incident: str | None = None, operation: str | None = None, /, **payload: Any) -> None:
        self.ledger.append(kind, payload, job="llm", incident=incident, operation_id=operation, time_s=time_s)

    def verdict(self, incident: str, time_s: float, since_s: float | None = None, *machines: str, sources: tuple[str, ...] = ()) -> None:
        self.write(
            kinds.VERDICT, time_s, incident, kind="machine" if machines else "job", machines=list(machines), since_s=since_s,
            sources=list(sources), tier="evict",
        )  # fmt: skip

    def act(self, incident: str, operation: str, time_s: float, action: str = "evict", machine: str = "m1", outcome: str = "done") -> None:
        self.ledger.intend(operation, {"action": action, "machines": [machine]}, job="llm", incident=incident, time_s=time_s)
        self.ledger.complete(operation, ActionResult(operation, time_s + 1, outcome))
        if outcome != "dry_run":
            self.write(kinds.GENERATION_STARTED, time_s + 2, incident, generation=2)

    def step(self, time_s: float, incident: str | None = None) -> None:
        self.write(kinds.FIRST_STEP, time_s, incident, step=10)

    def record(self, until_s: float = 1000.0, since_s: float = 0.0, jobs: Any = None) -> TrackRecord:
        fold = TrackRecordFold()
        for event in self.ledger.events(kinds=TRACK_KINDS):
            fold.add(event)
        return fold.record(since_s, until_s, jobs)


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    with Ledger(tmp_path / "ledger.db") as ledger:
        yield Past(ledger)


def test_of_an_empty_ledger_nothing_is_known(past: Past) -> None:
    found = past.record()
    assert (found.detection_s, found.detection_quantile(0.5)) == ((), None)
    shares = (found.isolation, found.recovery, found.returned, found.signals)
    assert {share.value for share in shares} == {None} and {share.bounds for share in shares} == {(0.0, 1.0)}


def test_detection_ends_with_the_verdict_that_names_a_machine(past: Past) -> None:
    past.verdict("a", 30.0, 10.0)  # the job hangs, since 10
    past.verdict("a", 50.0, 12.0, "m1")
    past.verdict("a", 90.0, 12.0, "m1")  # accused again
    past.verdict("b", 100.0, None, "m2")  # does not say since when
    past.verdict("c", 200.0, 190.0)  # names no machine at all
    past.write(kinds.VERDICT, 210.0, "c", kind="recovered", machines=["m9"])
    found = past.record()
    assert (found.detection_s, found.undated) == ((40.0,), 1)


def test_a_persons_word_goes_before_a_tests_and_both_are_shown(past: Past) -> None:
    for index, machine in enumerate(("m1", "m2", "m3")):
        past.act(machine, f"evict-{index}", 10.0 * index, machine=machine)
    past.write(kinds.OUTCOME, 50.0, "m1", machine="m1", outcome="no-fault-found", test="retest-1")
    past.write(kinds.OUTCOME, 60.0, "m1", machine="m1", outcome="confirmed", by="alice")
    past.write(kinds.OUTCOME, 70.0, "m2", machine="m2", outcome="no-fault-found", test="retest-2")
    found = past.record()
    assert (found.isolation, found.by_test, found.by_person) == (Share(1, 2, 1), Share(2, 2, 1), Share(0, 1, 2))


def test_a_dry_run_isolates_and_recovers_nothing(past: Past) -> None:
    past.act("a", "evict-a", 10.0, outcome="dry_run")
    found = past.record()
    assert (found.isolation, found.recovery) == (Share(0, 0), Share(0, 0))


@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("step", Share(1, 1)),
        ("finished", Share(1, 1)),
        ("failed", Share(0, 1)),
        ("closed", Share(0, 1)),
        ("again", Share(0, 1, 1)),  # the second is still under way
        ("nothing", Share(0, 0, 1)),
        ("another run", Share(0, 0, 1)),
        ("approved", Share(0, 1)),
        ("timeout", Share(1, 1)),
        ("ordered", Share(0, 1)),
    ],
)
def test_a_recovery_succeeds_where_the_job_steps_again_without_a_person(past: Past, ending: str, expected: Share) -> None:
    past.verdict("a", 5.0, 1.0, sources=("order",) if ending == "ordered" else ("stall",))
    if ending in ("approved", "timeout"):
        why = {"why": "timeout"} if ending == "timeout" else {}
        answer = {"answer": "approved", "by": "alice", "reason": "ok", **why}
        past.ledger.append_once(kinds.APPROVAL_SETTLED, answer, job="llm", incident="a", operation_id="evict-a", time_s=8.0)
    past.act("a", "evict-a", 10.0)
    if ending in ("step", "approved", "timeout", "ordered"):
        past.step(20.0, "a")
    elif ending in ("finished", "failed"):
        past.write(kinds.JOB_ENDED, 20.0, outcome=ending)
    elif ending == "closed":
        past.write(kinds.CLOSED, 20.0, "a", by="alice", why="given_up")
    elif ending == "again":
        past.act("a", "evict-b", 20.0, machine="m2")
    elif ending == "another run":
        past.write(kinds.JOB_REGISTERED, 20.0, machines=["m1"])
    found = past.record()
    assert found.recovery == expected
    assert found.with_person == (ending in ("approved", "ordered"))


def test_tests_while_the_job_stands_are_no_recovery_of_their_own(past: Past) -> None:
    past.act("a", "diagnose-a", 10.0, action="diagnose")
    past.act("a", "evict-a", 60.0)
    past.step(80.0, "a")
    assert past.record().recovery == Share(1, 1)


@pytest.mark.parametrize("source", ["update", "grow", "skip", "stall"])
def test_a_restart_that_is_asked_of_a_job_that_works_recovers_nothing(past: Past, source: str) -> None:
    decision = {"action": "restart", "verdict": {"kind": "job", "sources": [source]}}
    past.ledger.intend("restart-a", {"action": "restart", "machines": [], "decision": decision}, job="llm", incident="a", time_s=10.0)
    past.write(kinds.GENERATION_STARTED, 12.0, "a", generation=2)
    past.step(20.0, "a")
    assert past.record().recovery == (Share(1, 1) if source == "stall" else Share(0, 0))


def test_a_machine_that_is_evicted_within_a_week_of_its_return_was_returned_wrongly(past: Past) -> None:
    for index, machine in enumerate(("m1", "m2", "m3")):
        past.act(machine, f"evict-{index}", 10.0, machine=machine)
        past.write(kinds.UNBARRED, 100.0, machine, machine=machine, by="alice")
    past.act("m2-again", "evict-9", DAY_S, machine="m2")
    past.act("m3-again", "evict-10", 100.0 + WATCHED_S + DAY_S, machine="m3")  # a week later: another fault
    past.write(kinds.UNBARRED, 100.0, None, machine="never-evicted", by="alice")
    early, later = past.record(until_s=2 * DAY_S), past.record(until_s=100.0 + WATCHED_S)
    assert (early.returned, early.again) == (Share(0, 0, 3), 1), "a share of those alone that failed early would be 0 %"
    assert (later.returned, later.again) == (Share(2, 3), 0)


def test_lost_signals_are_counted_by_why(past: Past) -> None:
    past.write(kinds.SIGNAL_COUNT, 3600.0, since_s=0.0, judged=90, lost={"machine": 4, "rule": 5})
    past.write(kinds.SIGNAL_COUNT, 7200.0, since_s=3600.0, judged=10, lost={"machine": 1})
    found = past.record(until_s=DAY_S)
    assert (found.signals, found.lost) == (Share(100, 110), {"machine": 5, "rule": 5})
    assert past.record(until_s=DAY_S, since_s=5000.0).signals == Share(10, 11)


def test_of_other_jobs_nothing_is_shown(past: Past) -> None:
    past.verdict("a", 5.0, 1.0, "m1")
    past.act("a", "evict-a", 10.0)
    assert past.record(jobs=("other",)) == past.record(since_s=0.0, until_s=1000.0, jobs=())
    assert past.record(jobs=("llm",)).detection_s == (4.0,)
