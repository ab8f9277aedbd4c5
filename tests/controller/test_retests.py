"""Operators' orders to test a machine: what a controller refuses, and what it writes down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.diagnosis.retests import Retests
from minder.act.controller.state import JobState
from minder.diagnose.diagnostics.judgement import judge
from minder.model.decision import ActionResult
from minder.model.errors import WireError
from minder.model.evidence import Verdict
from minder.model.probes import Measurement, ProbeResult
from minder.record.incidents import Ledger, kinds
from minder.record.incidents.machines import MACHINE_KINDS, fold_machines
from minder.record.incidents.probes import fold_probes, probes_payload
from minder.wire.codec import to_json

NOW_S = 1_700_000_000.0


class FakeFleet:
    """Agents that answer with what stands in `answers`, in turn."""

    machines = ("m0", "m1")

    def __init__(self) -> None:
        self.answers: list[Any] = [{"state": "passed", "detail": "fine"}]
        self.asked: list[tuple[str, str]] = []

    def retest(self, machine: str, operation: str, wait_s: float) -> Any:
        self.asked.append((machine, operation))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger.db") as opened:
        yield opened


def order(ledger: Ledger, machine: str, time_s: float = NOW_S, job: str = "llm") -> None:
    name = f"retest-{machine}"
    ledger.append(kinds.RETEST_ASKED, {"machine": machine, "reason": "x", "by": "alice"}, job=job, operation_id=name, time_s=time_s)


def outcome(ledger: Ledger, fleet: Any, machine: str) -> tuple[str, str]:
    """Of the order about this machine, carried out by a new controller."""
    retests = Retests(JobState("llm", rank_machine={0: "m0"}, phase="running"), ledger, fleet, lambda: NOW_S + 1.0)
    end_s = time.monotonic() + 60.0
    while (found := ledger.result(f"retest-{machine}")) is None:
        assert time.monotonic() < end_s
        retests.tick()
        time.sleep(0.01)
    retests.close()
    return found.outcome, found.detail


@pytest.mark.parametrize(
    ("machine", "time_s", "told"),
    [
        ("m0", NOW_S, "m0 runs ranks of llm"),
        ("m9", NOW_S, "none of this job's [[machines]]"),
        ("m1", NOW_S - 4000.0, "within an hour"),
    ],
)
def test_what_would_disturb_or_cannot_be_done_fails_unasked(ledger: Ledger, machine: str, time_s: float, told: str) -> None:
    fleet = FakeFleet()
    order(ledger, machine, time_s)
    found, detail = outcome(ledger, fleet, machine)
    assert found == "failed" and told in detail and fleet.asked == []


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([{"state": "running"}, {"state": "passed", "detail": "fine"}], ("done", "fine")),
        ([WireError("agent of m1: no answer"), {"state": "failed", "detail": "HBM bad"}], ("failed", "HBM bad")),
        ([{"state": "refused", "detail": "no test here"}], ("failed", "not tested: no test here")),
        ([WireError("agent of m1: HTTP 404 on /v1/retest")], ("failed", "not tested: agent of m1: HTTP 404 on /v1/retest")),
    ],
)
def test_only_a_test_that_passed_counts_as_done(ledger: Ledger, answers: list[Any], expected: tuple[str, str]) -> None:
    fleet = FakeFleet()
    fleet.answers = answers
    order(ledger, "m1")
    assert outcome(ledger, fleet, "m1") == expected
    assert [event.kind for event in ledger.events()] == [kinds.RETEST_ASKED, kinds.INTENT, kinds.RESULT]
    retests = Retests(JobState("llm"), ledger, fleet, lambda: NOW_S)
    asked = len(fleet.asked)
    retests.tick()  # a controller that starts later finds it done
    assert len(fleet.asked) == asked


def test_another_jobs_orders_are_none_of_ours(ledger: Ledger) -> None:
    fleet = FakeFleet()
    order(ledger, "m1", job="other")
    Retests(JobState("llm"), ledger, fleet, lambda: NOW_S).tick()  # type: ignore[arg-type]
    assert fleet.asked == [] and ledger.events(kinds=[kinds.INTENT]) == []


# probes in the place of the site's command

PAST = tuple(range(1, 4))


def measured(value: float, state: str = "measured", time_s: float = NOW_S) -> ProbeResult:
    item = Measurement("gemm_gflops", value, "GFLOP/s", "higher")
    detail = "" if state == "measured" else "1 product is wrong"
    return ProbeResult("gemm", 1, state, detail, (item,), {"processor": "X"}, started_s=time_s)  # type: ignore[arg-type]


def answer_of(*results: ProbeResult, state: str = "measured") -> dict[str, Any]:
    return {"state": state, "detail": "gemm measured", "conclusive": True, "results": to_json(results)}


def evicted(ledger: Ledger, untouched: bool = False, give_back: bool = False, known: int = len(PAST)) -> None:
    """m1 was evicted from llm and is to be tested; it measured 100 so many times before."""
    for number in PAST[:known]:
        payload = probes_payload("m1", [measured(100.0, time_s=float(number))], [], by="alice", why="test")
        ledger.append(kinds.PROBES, payload, time_s=NOW_S - 50.0)
    incident = ledger.open_incident(Verdict(NOW_S, "machine", "evict", ("m1",), "stall", 0.9, NOW_S), job="llm", time_s=NOW_S)
    ledger.intend("evict-1", {"action": "evict", "machines": ["m1"]}, job="llm", incident=incident, time_s=NOW_S)
    ledger.complete("evict-1", ActionResult("evict-1", NOW_S, "done"))
    ledger.append(kinds.BARRED, {"machine": "m1"}, job="llm", incident=incident, time_s=NOW_S)
    payload = {"machine": "m1", "reason": "x", "by": "alice", "untouched": untouched, "return": give_back}
    ledger.append(kinds.RETEST_ASKED, payload, job="llm", operation_id="retest-m1", time_s=NOW_S)


@pytest.mark.parametrize(
    ("result", "known", "expected", "detail", "verdict"),
    [
        (measured(99.0), 3, "done", "probes passed: gemm", "no-fault-found"),
        (measured(60.0), 3, "failed", "slow: gemm: gemm_gflops is 60 GFLOP/s, 100 on 3 earlier results", "confirmed"),
        (measured(99.0, "failed"), 3, "failed", "fail: gemm: 1 product is wrong", "confirmed"),
        (measured(99.0), 0, "failed", "not tested: not judged: gemm: 0 equal machines", None),
        (measured(99.0, "not_judged"), 3, "failed", "not tested: not judged: gemm: 1 product is wrong", None),
        (measured(99.0, "not_applicable"), 3, "failed", "not tested: not applicable: gemm", None),
    ],
)
def test_probes_are_judged_by_the_machines_past_and_set_the_evictions_outcome(
    ledger: Ledger, result: ProbeResult, known: int, expected: str, detail: str, verdict: str | None
) -> None:
    fleet = FakeFleet()
    fleet.answers = [answer_of(result)]
    evicted(ledger, untouched=True, give_back=True, known=known)
    found = outcome(ledger, fleet, "m1")
    assert found[0] == expected and found[1].startswith(detail)
    assert fold_machines(ledger.events(kinds=MACHINE_KINDS))["m1"].outcome == verdict
    assert ledger.history("llm").barred == (frozenset() if expected == "done" else {"m1"}), "only a pass returns the machine"
    run = fold_probes(ledger.events(kinds=[kinds.PROBES]))[-1]
    assert (run.machine, run.why, run.results, run.judgements[0].probe) == ("m1", "retest", (result,), "gemm")


def test_a_pass_after_a_repair_neither_acquits_the_eviction_nor_returns_the_machine_unasked(ledger: Ledger) -> None:
    fleet = FakeFleet()
    fleet.answers = [answer_of(measured(100.0))]
    evicted(ledger)
    assert outcome(ledger, fleet, "m1")[0] == "done"
    assert fold_machines(ledger.events(kinds=MACHINE_KINDS))["m1"].outcome is None and ledger.history("llm").barred == {"m1"}


def test_a_pass_of_other_probes_than_the_one_that_failed_says_nothing(ledger: Ledger) -> None:
    fleet = FakeFleet()
    fleet.answers = [answer_of(measured(99.0))]
    evicted(ledger, untouched=True, give_back=True)
    full = ProbeResult("disk", 1, "failed", "the disk is full", started_s=NOW_S - 40.0)
    ledger.append(kinds.PROBES, probes_payload("m1", [full], list(judge({"m1": full}).values()), by="minder", why="diagnose"))
    found = outcome(ledger, fleet, "m1")
    assert found == ("failed", "not tested: disk did not pass before, and was not measured again; probes passed: gemm")
    assert fold_machines(ledger.events(kinds=MACHINE_KINDS))["m1"].outcome is None and ledger.history("llm").barred == {"m1"}


def test_what_a_person_said_of_the_eviction_stands(ledger: Ledger) -> None:
    fleet = FakeFleet()
    fleet.answers = [answer_of(measured(60.0))]
    evicted(ledger)
    ledger.append(kinds.OUTCOME, {"machine": "m1", "outcome": "no-fault-found"}, job="llm", time_s=NOW_S)
    outcome(ledger, fleet, "m1")
    assert fold_machines(ledger.events(kinds=MACHINE_KINDS))["m1"].outcome == "no-fault-found"


@pytest.mark.parametrize(("conclusive", "said", "verdict"), [(True, "status 3", "confirmed"), (False, "not tested: status 3", None)])
def test_a_sites_command_says_something_of_the_machine_where_it_ran_to_its_end(
    ledger: Ledger, conclusive: bool, said: str, verdict: str | None
) -> None:
    fleet = FakeFleet()
    fleet.answers = [{"state": "failed", "detail": "status 3", "conclusive": conclusive}]
    evicted(ledger)
    assert outcome(ledger, fleet, "m1") == ("failed", said)
    assert fold_machines(ledger.events(kinds=MACHINE_KINDS))["m1"].outcome == verdict


def test_an_answer_that_cannot_be_read_does_not_pass(ledger: Ledger) -> None:
    fleet = FakeFleet()
    fleet.answers = [{"state": "passed", "results": [{"probe": 3}]}]
    order(ledger, "m1")
    found = outcome(ledger, fleet, "m1")
    assert found[0] == "failed" and "cannot be read" in found[1]
