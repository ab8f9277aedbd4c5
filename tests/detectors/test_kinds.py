"""Kinds of fault that are easily learned as usual, or not heard at all: one job each."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, INTERVAL_S, METRICS, WORKS, accused, at, healthy

BEGAN = 70


@pytest.mark.parametrize(("metric", "factor"), [("gpu_clock_hertz", 0.7), ("ecn_packets_per_second", 8.0)])
def test_a_lone_large_lasting_change_of_a_cause_convicts_in_two_to_three_minutes(metric: str, factor: float) -> None:
    values_TMK = healthy(BEGAN + 50)
    values_TMK[BEGAN:, 5, at(metric)] *= factor
    found = accused(values_TMK)
    assert [item[:2] for item in found] == [(("m05",), "machine")]
    assert found[0][2] - BEGAN * INTERVAL_S <= 180.0 + 3 * INTERVAL_S


def test_gauges_that_freeze_as_the_job_stops_are_evidence() -> None:
    """All others move on: they spin."""
    values_TMK = healthy(BEGAN + 50)
    values_TMK[BEGAN:, 5] = values_TMK[BEGAN - 1, 5]
    values_TMK[BEGAN + 3 :, [m for m in range(8) if m != 5]] *= np.array([0.3, 0.6, 0.05, 0.05, 1.0, 1.0])
    assert {item[:2] for item in accused(values_TMK)} == {(("m05",), "machine")}


def test_gauges_of_the_gpus_alone_that_freeze_are_evidence() -> None:
    """The driver hangs; the network's own exporter goes on."""
    values_TMK = healthy(BEGAN + 50)
    gauges = [k for k in range(len(METRICS)) if k != at("rdma_throughput_bytes_per_second")]
    values_TMK[BEGAN:, 5, gauges] = values_TMK[BEGAN - 1, 5, gauges]
    values_TMK[BEGAN + 3 :, [m for m in range(8) if m != 5]] *= np.array([0.3, 0.6, 0.05, 0.05, 1.0, 1.0])
    values_TMK[BEGAN + 3 :, 5, at("rdma_throughput_bytes_per_second")] *= 0.05
    assert {item[:2] for item in accused(values_TMK)} == {(("m05",), "machine")}


def test_gauges_that_freeze_beside_a_job_that_goes_on_are_an_exporter() -> None:
    values_TMK = healthy(BEGAN + 50)
    values_TMK[BEGAN:, 5] = values_TMK[BEGAN - 1, 5]
    assert accused(values_TMK) == []


@pytest.mark.parametrize("onset", [24, 36])
def test_a_fault_of_the_first_minutes_is_found_by_comparison_with_peers(onset: int) -> None:
    """Two and three minutes after the first sample."""
    values_TMK = healthy(onset + 60)
    values_TMK[onset:, 5, WORKS] *= AT_REST
    values_TMK[onset + 2 :, :, WORKS] *= np.array([0.3, 0.6, 0.05, 0.05])
    assert [item[:2] for item in accused(values_TMK)] == [(("m05",), "machine")]


def test_a_machine_slow_from_the_first_step_is_found_by_comparison_with_peers() -> None:
    """Its clock is a third lower than that of each of its peers, which are alike, and its power with it."""
    values_TMK = healthy(90)
    values_TMK[:, 5, [at("gpu_clock_hertz"), at("gpu_power_draw_watts")]] *= np.array([0.65, 0.75])
    found = accused(values_TMK)
    assert [item[:2] for item in found] == [(("m05",), "machine")]
    assert found[0][2] <= 420.0


def test_machines_of_one_role_are_compared_with_each_other_only() -> None:
    """The two that generate work at their own pace, and come to do less; trainers go on."""
    values_TMK = healthy(BEGAN + 50, machines=10)
    roles = {f"m{m:02d}": "rollout" if m >= 8 else "trainer" for m in range(10)}
    values_TMK[:, 8:] *= np.array([0.5, 0.7, 0.1, 0.1, 1.0, 0.2])
    values_TMK[BEGAN:, 8:, : len(METRICS) - 2] *= 0.4
    assert accused(values_TMK, roles) == []
