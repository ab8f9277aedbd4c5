"""The straggler study's questions, answered out of the ledger: how often, when, which cause; and what is not judged is said."""

from __future__ import annotations

from typing import Any

import pytest

from minder.model.evidence import NOT_JUDGED
from minder.offline.reliability.account import Account
from minder.offline.reliability.page import render_report
from minder.offline.reliability.slow_steps import CAUSES
from minder.offline.reliability.tables import account_json, describe_slow_steps, slow_step_tables
from minder.record.incidents import kinds

HOUR_S = 3600.0
MONDAY_S = 1_772_409_600.0  # 2026-03-02, the Monday of week 10, at midnight UTC


def study(story: Any, at_s: float, cause: str, slowdown: float = 1.5, waste: float = 0.3, **changes: Any) -> None:
    payload = {"cause": cause, "slowdown": slowdown, "waste": waste, "trusted": True, **changes}
    story.ledger.append(kinds.STEP_STUDY, payload, job=story.job, time_s=MONDAY_S + at_s)


@pytest.fixture
def written(story: Any) -> Any:
    """Six hours: one without a study, two of a slow worker, one steady, one with a stage, half an hour of it not trusted, one untold."""
    story.register(MONDAY_S, first_step_s=MONDAY_S + 60.0)
    study(story, HOUR_S, "worker", 2.0, 0.5)
    study(story, 2 * HOUR_S, "worker", 2.0, 0.5)
    study(story, 3 * HOUR_S, "none", 1.02, 0.02)
    study(story, 4 * HOUR_S, "stage imbalance", 1.2, 0.2)
    study(story, 4.5 * HOUR_S, "stage imbalance", 1.2, 0.2, trusted=False)
    story.ledger.append(kinds.STEP_STUDY, {"cause": "not judged", "why": "x"}, job=story.job, time_s=MONDAY_S + 5 * HOUR_S)
    return story


def seconds(account: Account) -> dict[str, float]:
    return {word: round(found / HOUR_S, 3) for word, found in account.slow_steps.seconds.items()}


def test_time_is_counted_by_cause_and_what_no_study_stands_for_is_not_judged(written: Any) -> None:
    found = written.account(MONDAY_S, MONDAY_S + 6 * HOUR_S)
    assert seconds(found) == {NOT_JUDGED: 2.5, "worker": 2.0, "not slow": 1.0, "stage imbalance": 0.5}
    assert found.slow_steps.wasted_s == pytest.approx(HOUR_S * (2 * 0.5 + 0.02 + 0.5 * 0.2))
    said = describe_slow_steps(found.slow_steps)
    assert "slow in 71.4% of the judged time (worker 80.0%, stage imbalance 20.0% of that)" in said
    assert "slow in at least half of it: 1 of 1 judged" in said and "41.7% of the running time is not judged" in said


def test_a_study_stands_for_an_hour_and_a_half_at_most(story: Any) -> None:
    story.register(MONDAY_S, first_step_s=MONDAY_S + 60.0)
    study(story, 0.0, "worker")
    assert seconds(story.account(MONDAY_S, MONDAY_S + 10 * HOUR_S)) == {"worker": 1.5, NOT_JUDGED: 8.5}


def test_a_study_says_nothing_of_the_generation_after_it(story: Any) -> None:
    """The slow machine was evicted after an hour, and the steps of the new generation are studied from the half hour on."""
    story.register(MONDAY_S, first_step_s=MONDAY_S + 60.0)
    study(story, 0.0, "worker")
    story.ledger.append(kinds.GENERATION_STARTED, {"generation": 2}, job=story.job, time_s=MONDAY_S + HOUR_S)
    study(story, 1.5 * HOUR_S, "none", 1.0, 0.0)
    assert seconds(story.account(MONDAY_S, MONDAY_S + 2 * HOUR_S)) == {"worker": 1.0, NOT_JUDGED: 0.5, "not slow": 0.5}


def test_the_first_hour_of_a_run_is_an_hour_whenever_it_began(story: Any) -> None:
    begun_s = 0.25 * HOUR_S
    story.register(MONDAY_S + begun_s, first_step_s=MONDAY_S + begun_s + 60.0)
    for hour in range(4):
        study(story, begun_s + hour * HOUR_S, "none" if hour else "worker", 1.0 if hour else 1.5)
    ages = story.account(MONDAY_S, MONDAY_S + begun_s + 4 * HOUR_S).slow_steps.by_age
    assert ages == {"first hour": {"worker": HOUR_S}, "1 h to 6 h": {"not slow": 3 * HOUR_S}}


def test_a_slow_time_over_the_end_of_a_week_is_shared_and_a_week_without_a_run_is_a_row(story: Any) -> None:
    sunday_s, later_s = 6.75 * 86_400.0, 15 * 86_400.0
    story.register(MONDAY_S + sunday_s, first_step_s=MONDAY_S + sunday_s + 60.0)
    for hour in range(8):
        study(story, sunday_s + hour * HOUR_S, "none" if hour in (0, 7) else "worker", 1.5 if 0 < hour < 7 else 1.0)
    story.end(MONDAY_S + sunday_s + 8 * HOUR_S)
    story.register(MONDAY_S + later_s, first_step_s=MONDAY_S + later_s + 60.0)
    story.end(MONDAY_S + later_s + HOUR_S)
    found = story.account(MONDAY_S, MONDAY_S + 21 * 86_400.0)
    ((_, rows),) = [table for table in slow_step_tables(found.slow_steps) if table[0] == "By week"]
    nothing = ("-",) * (1 + len(CAUSES))
    assert rows[1:] == [
        ("2026-W10", "6h", "83.3%", "83.3%", "0.0%", "0.0%", "0.0%", "0.0%", "0.0%"),
        ("2026-W11", "2h", "50.0%", "50.0%", "0.0%", "0.0%", "0.0%", "0.0%", "0.0%"),
        ("2026-W12", "1h", *nothing, "100.0%"),
    ]
    story.register(MONDAY_S + 4 * 7 * 86_400.0)
    story.end(MONDAY_S + 4 * 7 * 86_400.0 + HOUR_S)
    found = story.account(MONDAY_S, MONDAY_S + 35 * 86_400.0)
    ((_, rows),) = [table for table in slow_step_tables(found.slow_steps) if table[0] == "By week"]
    assert rows[4] == ("2026-W13", "no run", *nothing, "-") and len(rows) == 6
    assert account_json(found)["slow_steps"]["by_week"]["2026-W13"] == {}


def test_when_is_counted_by_week_by_age_and_by_hour_of_the_day(written: Any) -> None:
    found = written.account(MONDAY_S - 7 * 86_400.0, MONDAY_S + 6 * HOUR_S).slow_steps
    tables = {title: {row[0]: row[1:] for row in rows[1:]} for title, rows in slow_step_tables(found)}
    assert list(tables["By week"]) == ["2026-W10"] and list(tables["By job"]) == ["llm"]
    assert tables["By week"]["2026-W10"] == ("6h", "71.4%", "57.1%", "14.3%", "0.0%", "0.0%", "0.0%", "41.7%")
    assert tables["By the run's age"]["first hour"] == ("1h", *["-"] * (1 + len(CAUSES)), "100.0%")
    assert tables["By the run's age"]["1 h to 6 h"][1] == "71.4%"
    hours = {hour: row[1] for hour, row in tables["By hour of the day (UTC)"].items()}
    assert hours == {"00": "-", "01": "100.0%", "02": "100.0%", "03": "0.0%", "04": "100.0%", "05": "-"}


def test_slow_without_a_single_cause_is_slow_all_the_same(story: Any) -> None:
    story.register(MONDAY_S, first_step_s=MONDAY_S + 60.0)
    study(story, 0.0, "none", 1.3)
    assert seconds(story.account(MONDAY_S, MONDAY_S + HOUR_S)) == {"no single cause": 1.0}


def test_the_report_and_the_document_have_the_answers(written: Any) -> None:
    found = written.account(MONDAY_S, MONDAY_S + 6 * HOUR_S)
    page = render_report(found)
    assert "<h2>Slow steps</h2><p>Steps were slow in 71.4%" in page and "<th>2026-W10</th>" in page.replace("<td>", "<th>").replace(
        "</td>", "</th>"
    )
    assert account_json(found)["slow_steps"]["by_job"]["llm"]["worker"] == 2 * HOUR_S


def test_a_site_that_traces_nothing_is_not_judged_rather_than_well(story: Any) -> None:
    story.register(MONDAY_S, first_step_s=MONDAY_S + 60.0)
    page = render_report(story.account(MONDAY_S, MONDAY_S + 6 * HOUR_S))
    assert "<h2>Slow steps</h2><p>Not judged: no job traced its steps" in page
