"""Stuck sensors are no data; a job that stands still is data."""

from __future__ import annotations

import numpy as np
import pytest

from minder.ingest.windows.frozen import FROZEN_AFTER, FrozenWatch, can_freeze, find_frozen_N
from minder.model.metrics import find_metric

POWER = find_metric("gpu_power_draw_watts")


def watch(values):
    watcher = FrozenWatch(POWER)
    return np.array([watcher.is_frozen(float(value)) for value in values])


def lively(count, seed=0):
    return np.random.default_rng(seed).uniform(300, 500, count)


def test_a_gauge_that_sticks_after_it_moved_is_no_data():
    frozen = watch([*lively(60), *[412.5] * 50, 413.0])
    assert not frozen[: 60 + FROZEN_AFTER].any()
    assert frozen[60 + FROZEN_AFTER : 110].all()
    assert not frozen[110]


@pytest.mark.parametrize("before", [[400.0] * 60, list(lively(10)), [400.0, 400.0, 400.0, 400.0, 401.0] * 20])
def test_a_gauge_that_was_never_lively_may_stand_still(before):
    assert not watch([*before, *[412.5] * 100]).any()


def test_nothing_at_all_is_not_a_stuck_sensor():
    assert not watch([*lively(60), *[0.0] * 100]).any()


@pytest.mark.parametrize("name", ["steps_total", "job_cpu_ratio", "tcp_send_queue_bytes", "step_seconds", "link_downs_total"])
def test_what_stands_still_when_the_job_hangs_is_never_called_stuck(name):
    assert not can_freeze(find_metric(name))


def test_many_series_at_once_say_the_same():
    rng = np.random.default_rng(1)
    series = []
    for n in range(40):
        stuck = [float(rng.choice([0.0, 412.5, 5000.0]))] * int(rng.integers(1, 80))
        series.append(np.array([*np.round(rng.uniform(300, 500, int(rng.integers(1, 90))), int(n % 4)), *stuck, *lively(5, n)]))
    together = find_frozen_N(np.concatenate(series), np.repeat(np.arange(40), [len(s) for s in series]), POWER)
    np.testing.assert_array_equal(together, np.concatenate([watch(s) for s in series]))
    assert together.any()
