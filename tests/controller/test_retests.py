"""Operators' orders to test a machine: what a controller refuses, and what it writes down."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.retests import Retests
from minder.act.controller.state import JobState
from minder.model.errors import WireError
from minder.record.incidents import Ledger, kinds

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
