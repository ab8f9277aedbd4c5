"""How a site measures: intervals, offsets, separate rows, few metrics, whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


@pytest.mark.parametrize("interval_s", [1.0, 5.0, 15.0])
def test_machines_are_scraped_at_their_own_offsets(interval_s: float, grid: Callable[..., Any]) -> None:
    made = grid(monitoring={"intervals_s": (interval_s,)}).made
    first_M = np.array([made.rows.time_R[made.rows.machine_R == m].min() for m in range(8)]) / 1000.0
    steps = np.diff(made.rows.time_R[made.rows.machine_R == 0]) / 1000.0
    assert np.ptp(first_M) > 0.2 * interval_s
    assert np.median(steps) == pytest.approx(interval_s, rel=0.05) and steps.std() > 0.0
    assert made.site.interval_s == interval_s


def test_exporters_in_separate_rows_lose_nothing(grid: Callable[..., Any]) -> None:
    made = grid(monitoring={"separate_rows_share": 1.0}).made
    filled_RK = np.isfinite(made.rows.values_RK)
    assert (filled_RK.sum(axis=1) < len(made.site.models)).all()
    assert np.ptp(filled_RK.sum(axis=0)) <= 0.1 * filled_RK.sum(axis=0).max()


def test_a_poor_site_exports_few_metrics_and_one_that_tells_of_the_training(grid: Callable[..., Any]) -> None:
    for index in range(1, 8):
        models = grid(index=index, monitoring={"few_share": 1.0, "few": (3, 10)}).made.site.models
        assert 3 <= len(models) <= 10
        assert {model.group for model in models} & {"duty", "power", "compute", "fabric"}


def test_whole_numbers(grid: Callable[..., Any]) -> None:
    values = grid(monitoring={"whole_numbers_share": 1.0}).of("gpu_temperature_celsius")
    assert np.array_equal(values[np.isfinite(values)], np.round(values[np.isfinite(values)]))


def test_lost_scrapes_and_values_are_as_many_as_the_recipe_says(grid: Callable[..., Any]) -> None:
    made = grid(monitoring={"lost_scrapes": 0.1, "lost_values": 0.05}).made
    assert len(made.rows.values_RK) / (8 * 600) == pytest.approx(0.9, abs=0.03)
    assert np.isnan(made.rows.values_RK).mean() == pytest.approx(0.05, abs=0.005)


def test_rates_are_means_over_the_interval_and_gauges_are_not(grid: Callable[..., Any]) -> None:
    """A checkpoint of seconds is diluted in a rate that is scraped every 15 s, and deep in the gauge that hits it."""
    calm = {"schedule": {"checkpoint_every_s": (60.0, 61.0), "checkpoint_s": (5.0, 5.0)}, "duration_s": (1200.0, 1200.0)}
    fast, slow = grid(**calm), grid(**calm, monitoring={"intervals_s": (15.0,)})
    peak_fast, peak_slow = (np.nanmax(found.of("tcp_throughput_bytes_per_second")) for found in (fast, slow))
    low_fast, low_slow = (np.nanmin(found.of("gpu_sm_activity_ratio")) for found in (fast, slow))
    assert peak_slow < 0.7 * peak_fast and low_slow < 1.5 * low_fast
