from __future__ import annotations

from typing import Any

import pytest

from minder.offline.reliability.reading import read_account
from minder.record.incidents import Ledger, kinds

DAY = 86_400.0


def only(account: Any) -> Any:
    (job,) = account.jobs
    return job


def test_an_hour_with_one_hang_is_split_into_its_phases(story: Any) -> None:
    story.register(0.0, first_step_s=60.0)
    story.hang(1000.0)
    story.end(3600.0)
    account = story.account(0.0, 4000.0)
    job = only(account)
    assert account.by_cause == {
        "start": {"start": 60.0},
        "stall": {"detect": 30.0, "decide": 10.0, "restart": 50.0, "load": 20.0, "recompute": 20.0},
    }
    assert (job.running_s, job.lost_s) == (3600.0, 190.0)
    assert job.ettr == job.ettr_low == account.ettr == pytest.approx(1 - 190 / 3600)
    (loss,) = job.losses
    assert (loss.incident.id, loss.lost_s, loss.gpu_s) == ("llm-1", 130.0, 32 * 130.0)
    assert job.notes == ()


def test_the_worst_hour_is_found_wherever_it_lies(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    story.hang(10_000.0)
    story.hang(12_000.0)
    story.end(30_000.0)
    job = only(story.account(0.0, 30_000.0))
    assert job.hour.worst == pytest.approx((1 - 260 / 3600, 12_130.0))
    assert job.hour.last == 1.0


def test_an_open_incident_costs_until_now(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    story.verdict(1000.0, 1030.0)
    job = only(story.account(0.0, 5000.0))
    assert job.losses[0].by_phase == {"detect": 30.0, "decide": 3970.0}
    assert job.ettr == pytest.approx(0.2)
    assert "open incidents: 1" in " ".join(job.notes)


def test_an_unfinished_recovery_is_in_the_phase_that_it_has_reached(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    incident = story.verdict(1000.0, 1030.0)
    story.evict(incident, 1040.0, 1100.0)
    assert only(story.account(0.0, 1600.0)).losses[0].by_phase == {"detect": 30.0, "decide": 10.0, "restart": 60.0, "load": 500.0}
    assert only(story.account(0.0, 1060.0)).losses[0].by_phase == {"detect": 30.0, "decide": 10.0, "restart": 20.0}


def test_a_restart_that_has_not_ended_is_no_load(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    incident = story.verdict(1000.0, 1030.0)
    story.evict(incident, 1040.0, None)
    assert only(story.account(0.0, 1100.0)).losses[0].by_phase == {"detect": 30.0, "decide": 10.0, "restart": 60.0}


def test_no_second_is_counted_twice(story: Any) -> None:
    """A second machine falls while the first is being replaced; the restart of the one serves both."""
    story.register(0.0, first_step_s=0.0)
    first = story.verdict(1000.0, 1030.0, "m1")
    story.verdict(1010.0, 1035.0, "m3")
    story.evict(first, 1040.0, 1090.0, "m1")
    story.step_again(first, 1110.0, last_step=47)
    story.end(2000.0)
    job = only(story.account(0.0, 2000.0))
    assert job.lost_s == 110.0
    assert [(loss.incident.id, loss.lost_s) for loss in job.losses] == [("llm-1", 110.0)]


def test_an_incident_that_was_left_open_costs_nothing_while_the_job_goes_on(story: Any) -> None:
    """Another generation stepped at 1500; nobody closed the incident, and the same machine falls again at 5000."""
    story.register(0.0, first_step_s=0.0)
    incident = story.verdict(1000.0, 1030.0)
    story.step_again(None, 1500.0)
    assert story.verdict(5000.0, 5010.0) == incident
    story.evict(incident, 5040.0, 5050.0)
    story.step_again(incident, 5060.0, last_step=47)
    story.end(6000.0)
    (loss,) = only(story.account(0.0, 6000.0)).losses
    assert loss.by_phase == {"detect": 40.0, "decide": 500.0, "restart": 10.0, "load": 10.0}


def test_an_accusation_that_is_repeated_is_no_second_trouble(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    incident = story.verdict(1000.0, 1030.0)
    assert story.verdict(1000.0, 1100.0) == incident
    story.evict(incident, 1140.0, 1150.0)
    story.step_again(incident, 1160.0, last_step=47)
    story.end(2000.0)
    (loss,) = only(story.account(0.0, 2000.0)).losses
    assert loss.by_phase == {"detect": 30.0, "decide": 110.0, "restart": 10.0, "load": 10.0}


def test_a_slow_machine_costs_time_only_from_the_moment_of_acting(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    incident = story.verdict(1000.0, 1300.0, cause="slowdown")
    story.evict(incident, 1400.0, 1440.0)
    story.step_again(incident, 1450.0, last_step=47)
    story.end(2000.0)
    job = only(story.account(0.0, 2000.0))
    assert (job.lost_s, job.slowed_s) == (50.0, 400.0)
    assert (job.ettr, job.ettr_low) == (pytest.approx(0.975), pytest.approx(0.775))


@pytest.mark.parametrize("fields", [{"tier": "watch"}, {"cause": "unknown"}])
def test_a_suspicion_alone_is_no_lost_time_and_no_progress_either(story: Any, fields: dict[str, Any]) -> None:
    story.register(0.0, first_step_s=0.0)
    story.verdict(500.0, 600.0, **fields)
    job = only(story.account(0.0, 1000.0))
    assert (job.ettr, job.ettr_low) == (1.0, 0.5)


def test_a_dry_run_restarts_nothing(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    incident = story.verdict(1000.0, 1030.0)
    story.evict(incident, 1040.0, 1050.0, outcome="dry_run")
    assert only(story.account(0.0, 2000.0)).losses[0].by_phase == {"detect": 30.0, "decide": 970.0}


def test_a_failed_run_is_down_until_it_is_started_again(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    story.end(1000.0, "failed")
    story.register(1600.0, first_step_s=1700.0)
    story.end(2000.0)
    job = only(story.account(0.0, 5000.0))
    assert story.account(0.0, 5000.0).by_phase == {"stopped": 600.0, "start": 100.0}
    assert (job.runs, job.running_s, job.ettr) == (2, 2000.0, pytest.approx(0.65))


def test_a_finished_job_may_rest(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    story.end(1000.0)
    story.register(9000.0, first_step_s=9000.0)
    story.end(10_000.0)
    job = only(story.account(0.0, 10_000.0))
    assert (job.running_s, job.ettr) == (2000.0, 1.0)


@pytest.mark.parametrize("noted_at_the_next_start", [True, False])
def test_of_a_run_whose_end_nobody_saw_the_rest_is_not_known(story: Any, noted_at_the_next_start: bool) -> None:
    story.register(0.0, first_step_s=10.0)
    story.hang(500.0)
    if noted_at_the_next_start:  # as `minder run` does with a run that was killed
        story.ledger.append(kinds.JOB_ENDED, {"outcome": "failed", "detail": "it ended with its `minder run`"}, job="llm", time_s=5000.0)
    story.register(5000.0, first_step_s=5000.0)
    story.end(6000.0)
    job = only(story.account(0.0, 6000.0))
    assert (job.running_s, job.unknown_s) == (1610.0, 4390.0)
    assert job.ettr_low < 0.3 < job.ettr
    assert "nothing is known" in " ".join(job.notes)


def test_a_job_that_is_only_watched_has_no_ettr_but_its_losses(story: Any) -> None:
    story.verdict(1000.0, 1030.0)
    account = story.account(0.0, 2000.0)
    job = only(account)
    assert (account.ettr, job.ettr, job.running_s, job.lost_s, job.gpu_s) == (None, None, 0, 1000.0, None)
    assert "only watched" in job.notes[0]


@pytest.mark.parametrize("finished", [True, False])
def test_of_a_job_that_reports_no_steps_nothing_is_known(story: Any, finished: bool) -> None:
    """A script without heartbeats trains for an hour: neither progress nor an hour of start-up."""
    story.register(0.0)
    if finished:
        story.end(3600.0)
    (job,) = story.account(0.0, 3600.0).jobs
    assert (job.ettr, job.lost_s, job.unknown_s, job.stretches) == (None, 0.0, 3600.0, ())
    assert "a run reported no steps" in job.notes[0]


def test_what_an_incident_took_of_a_run_without_steps_is_known(story: Any) -> None:
    story.register(0.0)
    incident = story.verdict(1000.0, 1030.0)
    story.evict(incident, 1040.0, 1090.0)
    story.ledger.append(kinds.CLOSED, {"reason": "it goes on"}, job="llm", incident=incident, time_s=1100.0)
    story.end(3600.0)
    (job,) = story.account(0.0, 3600.0).jobs
    assert job.ettr is None and job.lost_s == pytest.approx(100.0) and job.unknown_s == pytest.approx(3500.0)
    assert {stretch.cause for stretch in job.stretches} == {"stall"}


def test_a_run_without_steps_leaves_the_ettr_of_the_others_alone(story: Any) -> None:
    story.register(0.0, first_step_s=100.0)
    story.end(1000.0)
    story.register(2000.0)
    story.end(3000.0)
    (job,) = story.account(0.0, 3000.0).jobs
    assert job.ettr == pytest.approx(0.9) and job.unknown_s == 1000.0
    assert job.ettr_low == pytest.approx(1.0 - 1100.0 / 2000.0)


def test_a_run_that_failed_before_its_first_step_was_lost(story: Any) -> None:
    story.register(0.0)
    story.end(500.0, "failed")
    (job,) = story.account(0.0, 500.0).jobs
    assert job.ettr == 0.0 and job.lost_s == 500.0 and job.unknown_s == 0.0


def test_silence_is_not_health(story: Any) -> None:
    """The run was registered long ago; whether anything has run since, nobody wrote down."""
    story.register(0.0, first_step_s=10.0)
    job = only(story.account(10 * DAY, 17 * DAY))
    assert (job.ettr, job.unknown_s) == (None, 7 * DAY)
    recent = only(story.account(0.0, 7 * DAY))
    assert recent.ettr is not None and "--until newest" in " ".join(recent.notes)


def test_a_checkpoint_that_no_controller_sees_costs_what_the_first_new_step_says(story: Any) -> None:
    """Found by bench/chaos.py: of state in memory `resumed_from` is not known, and every step since the first was taken for repeated."""
    story.register(0.0, first_step_s=0.0)
    incident = story.verdict(1000.0, 1030.0)
    story.evict(incident, 1040.0, 1090.0)
    story.step_again(incident, 1110.0, step=107, last_step=107, resumed_from=None)
    story.end(2000.0)
    job = only(story.account(0.0, 2000.0))
    assert job.lost_s == 120.0 and job.losses[0].by_phase["recompute"] == 10.0
    assert job.losses[0].incident.steps_lost == 1


def test_repeated_steps_of_unknown_length_are_reported(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    incident = story.verdict(1000.0, 1030.0)
    story.evict(incident, 1040.0, 1090.0)
    story.step_again(incident, 1110.0, step_seconds=None)
    story.end(2000.0)
    job = only(story.account(0.0, 2000.0))
    assert job.lost_s == 110.0
    assert "at least" in " ".join(job.notes)


def test_only_what_lies_in_the_period_counts(story: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    story.hang(1000.0)
    story.hang(3000.0)
    story.end(4000.0)
    account = story.account(1035.0, 3010.0)
    assert account.by_cause == {"stall": {"detect": 10.0, "decide": 5.0, "restart": 50.0, "load": 20.0, "recompute": 20.0}}
    assert only(account).running_s == 1975.0
    assert only(account).losses[0].by_phase["decide"] == 5.0
    assert account.incidents == (), "neither was opened in this time"
    assert story.account(5000.0, 6000.0).jobs == ()


def test_jobs_are_told_apart(story: Any, tell: Any) -> None:
    story.register(0.0, first_step_s=0.0)
    other = tell("other")
    other.register(0.0, first_step_s=0.0)
    other.hang(100.0)
    for each in (story, other):
        each.end(1300.0)
    account = story.account(0.0, 2000.0)
    assert [(job.job, job.ettr) for job in account.jobs] == [("llm", 1.0), ("other", pytest.approx(0.9))]
    assert account.ettr == pytest.approx(0.95)
    assert [job.job for job in story.account(0.0, 2000.0, "other").jobs] == ["other"]
    assert story.account(0.0, 2000.0, "nobody").jobs == ()


def test_every_database_tells_the_same(database: str, tell: Any) -> None:
    with Ledger(database) as ledger:
        story = tell()
        story.ledger = ledger
        story.register(0.0, first_step_s=60.0)
        story.hang(1000.0)
        story.end(3600.0)
    assert only(read_account(database, "2h", "1970-01-01T01:06:40Z")).lost_s == 190.0
    newest = read_account(database, "1h", "newest")
    assert (newest.since_s, newest.until_s) == (0.0, 3600.0)
