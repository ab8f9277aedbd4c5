"""Limits that are not set follow from the job's machines and its age, and stay limits."""

from __future__ import annotations

import numpy as np
import pytest

from minder.act.policy import PolicyConfig
from minder.act.policy.allowance import Allowance, allowance
from minder.act.recovery.pool_size import DEFAULT_RATE

DAY_S = 86_400.0


def test_a_small_job_has_the_same_limits_however_long_it_runs() -> None:
    least = Allowance(job=8, day=8, hour=4, restarts=12)
    assert {allowance(PolicyConfig(), 16, run_s) for run_s in (None, -60.0, 0.0, DAY_S, 90 * DAY_S)} == {least}


def test_limits_grow_with_machines_and_only_the_runs_with_time() -> None:
    assert PolicyConfig().failures_per_machine_day == DEFAULT_RATE, "the pool of standbys is reckoned with the same"
    young, old, large = (allowance(PolicyConfig(), machines, days * DAY_S) for machines, days in ((1200, 1), (1200, 90), (25_000, 90)))
    assert (young.job, old.job) == (8, 164)
    assert (young.day, young.hour) == (old.day, old.hour) == (8, 4)
    assert (large.day, large.hour, large.restarts) == (47, 5, 47)


@pytest.mark.parametrize("machines", [1200, 25_000])
def test_a_fleet_that_fails_as_expected_hardly_ever_meets_a_limit(machines: int) -> None:
    """And one that evicts five times as many meets the day's on almost every day."""
    limit, generator = allowance(PolicyConfig(), machines, 90 * DAY_S), np.random.default_rng(0)
    a_day, a_run = machines * DEFAULT_RATE, 90 * machines * DEFAULT_RATE
    assert np.mean(generator.poisson(a_day, 100_000) > limit.day) < 0.002
    assert np.mean(generator.poisson(a_day / 24.0, 100_000) > limit.hour) < 0.01
    assert np.mean(generator.poisson(a_run, 100_000) > limit.job) < 0.002
    assert np.mean(generator.poisson(5 * max(a_day, 4.0), 10_000) > limit.day) > 0.95


def test_what_a_site_sets_holds_and_a_day_allows_what_its_hour_does() -> None:
    given = PolicyConfig(max_evictions_per_job=1, max_evictions_per_day=2, max_evictions_per_hour=3, max_restarts_per_day=0)
    assert allowance(given, 25_000, 90 * DAY_S) == Allowance(1, 2, 3, 0)
    assert allowance(PolicyConfig(max_evictions_per_hour=50), 16, None).day == 50
    assert allowance(PolicyConfig(failures_per_machine_day=0.0), 25_000, DAY_S) == Allowance(8, 8, 4, 12)
