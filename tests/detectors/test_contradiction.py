"""One metric that all else of its machine contradicts."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, WORKS, accused, at, healthy, watch

BEGAN = 70


@pytest.mark.parametrize(("metric", "share"), [("gpu_sm_activity_ratio", 0.0), ("gpu_sm_activity_ratio", 0.01), ("gpu_clock_hertz", 1e-6)])
def test_one_metric_that_all_else_contradicts_names_no_machine_and_is_reported(metric: str, share: float) -> None:
    """Profiling fields read 0 on one machine, or a unit has changed, for good."""
    values_TMK = healthy(BEGAN + 40)
    values_TMK[BEGAN:, 2, at(metric)] *= share
    found, scores = watch(values_TMK)
    assert found == []
    assert list(scores[-1].not_judged) == ["m02"]
    assert metric in scores[-1].not_judged["m02"]
    assert scores[BEGAN - 1].not_judged == {}


def test_a_machine_that_falls_in_all_it_does_and_stops_the_others_is_named() -> None:
    values_TMK = healthy(BEGAN + 40)
    values_TMK[BEGAN:, 2, WORKS] *= AT_REST
    values_TMK[BEGAN + 2 :, :, WORKS] *= np.array([0.3, 0.6, 0.05, 0.05])
    assert [item[:2] for item in accused(values_TMK)] == [(("m02",), "machine")]


@pytest.mark.parametrize(
    ("metric", "factor"),
    [
        ("gpu_sm_activity_ratio", 100.0),
        pytest.param("rdma_throughput_bytes_per_second", 1000.0, marks=pytest.mark.release),
        pytest.param("gpu_power_draw_watts", 0.0, marks=pytest.mark.release),
    ],
)
def test_another_unit_names_no_machine_when_all_are_slowed_later(metric: str, factor: float) -> None:
    values_TMK = healthy(BEGAN + 100)
    values_TMK[BEGAN:, 2, at(metric)] *= factor
    values_TMK[BEGAN + 40 :, :, WORKS] *= 0.6
    assert accused(values_TMK) == []


def test_what_was_broken_before_a_stop_of_all_is_still() -> None:
    values_TMK = healthy(BEGAN + 60)
    values_TMK[BEGAN:, 2, at("gpu_sm_activity_ratio")] *= 0.01
    values_TMK[BEGAN + 30 :, :, WORKS] *= np.array([0.3, 0.6, 0.05, 0.05])
    assert accused(values_TMK) == []
