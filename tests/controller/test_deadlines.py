"""Who waits for an operator, by which clock, and what a controller makes of the questions of one before it."""

from __future__ import annotations

import pytest

from minder.act.controller.approvals import LOOK_FOR_S, ApprovalDeadlines
from minder.model.clock import FakeClock
from minder.model.decision import Decision, Price
from minder.model.evidence import Verdict
from minder.model.history import Approval

NOW_S = 1_700_000_000.0


def question(on_timeout: str = "page", asked_s: float = NOW_S, length_s: float = 900.0) -> Approval:
    verdict = Verdict(asked_s, "machine", "evict", ("m1",), "stall", 0.9, asked_s)
    decision = Decision("evict-1", asked_s, "evict", ("m1",), "act", "", verdict, Price(1.0, 2.0))
    return Approval(decision, "llm", ("llm-1",), 1, asked_s, asked_s + length_s, on_timeout)


@pytest.mark.parametrize("by_s", [-86_400.0, 86_400.0])
def test_whoever_asked_waits_the_whole_time_however_the_clock_is_set(by_s: float) -> None:
    clock = FakeClock(NOW_S)
    deadlines, item = ApprovalDeadlines(clock), question()
    deadlines.begin("evict-1", 900.0)
    clock.sleep(400.0)
    assert not deadlines.is_over(item) and deadlines.moved(item) is None
    clock.set_forward(by_s)
    assert not deadlines.is_over(item) and deadlines.moved(item) == pytest.approx(NOW_S + 900.0 + by_s)
    clock.sleep(499.0)
    assert not deadlines.is_over(item)
    clock.sleep(1.0)
    assert deadlines.is_over(item)


@pytest.mark.parametrize(
    ("rule", "by_s", "left_s"),
    [
        ("page", 300.0, 600.0),  # what the wall clock says has passed
        ("page", -86_400.0, 900.0),  # never more than the whole time
        ("reject", 86_400.0, 0.0),
        ("approve", 86_400.0, LOOK_FOR_S),  # nothing is done without anybody's yes before a look of its own
        ("approve", 300.0, 600.0),
    ],
)
def test_whoever_takes_over_waits_within_bounds(rule: str, by_s: float, left_s: float) -> None:
    clock = FakeClock(NOW_S + by_s)
    deadlines, item = ApprovalDeadlines(clock), question(rule)
    assert deadlines.is_over(item) is (left_s == 0.0)
    clock.sleep(max(0.0, left_s - 1.0))
    assert deadlines.is_over(item) is (left_s == 0.0)
    clock.sleep(1.0)
    assert deadlines.is_over(item)
