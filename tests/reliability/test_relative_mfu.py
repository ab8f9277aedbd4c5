"""Relative MFU of a period: the mean of its hours, each by the best window that is known today."""

from __future__ import annotations

from typing import Any

import pytest

from minder.offline.reliability.tables import account_json, job_rows
from minder.record.incidents import kinds

MONDAY_S, HOUR_S = 1_700_438_400.0, 3600.0


def note(story: Any, hour: int, rate: float, best: float, update: int = 0) -> None:
    payload = {"update": update, "unit": "tokens", "machines": 4, "rate": rate, "best": best, "relative": rate / best, "window_s": 600.0}
    story.ledger.append(kinds.WORK, payload, job=story.job, time_s=MONDAY_S + hour * HOUR_S)


@pytest.fixture
def registered(story: Any) -> Any:
    story.register(MONDAY_S, first_step_s=MONDAY_S + 60.0)
    return story


def test_hours_count_by_the_best_of_their_version(registered: Any) -> None:
    note(registered, 1, 50.0, 50.0)
    note(registered, 2, 100.0, 100.0)  # the first hour was only half of what the job can do
    note(registered, 3, 30.0, 40.0, update=1)
    account = registered.account(MONDAY_S, MONDAY_S + 4 * HOUR_S)
    assert account.jobs[0].relative_mfu == pytest.approx((0.5 + 1.0 + 0.75) / 3)
    assert account_json(account)["jobs"][0]["relative_mfu"] == account.jobs[0].relative_mfu
    assert job_rows(account.jobs)[1][-1] == "0.75"


def test_a_job_whose_steps_carry_nothing_is_unknown(registered: Any) -> None:
    account = registered.account(MONDAY_S, MONDAY_S + 4 * HOUR_S)
    assert account.jobs[0].relative_mfu is None
    assert job_rows(account.jobs)[1][-1] == "unknown"


def test_hours_outside_the_period_only_say_what_was_best(registered: Any) -> None:
    note(registered, 1, 50.0, 50.0)
    note(registered, 5, 100.0, 100.0)
    account = registered.account(MONDAY_S, MONDAY_S + 2 * HOUR_S)
    assert account.jobs[0].relative_mfu == pytest.approx(0.5)
