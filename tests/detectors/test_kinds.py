"""Kinds of fault that are easily learned as usual, or not heard at all: one job each."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, INTERVAL_S, METRICS, WORKS, accused, at, healthy, watch

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


HARDWARE, THERMAL, BRAKE = 8, 64, 128  # bits of NVML's reasons for a lower clock
SITE_CAP, IDLE = 4, 1


def with_reasons(values_TMK: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """The same job, whose GPUs export why their clocks are lower: the site caps the power of all now and then."""
    caps_TM1 = np.random.default_rng(9).choice([0.0, SITE_CAP], size=(*values_TMK.shape[:2], 1))
    return np.concatenate([values_TMK, caps_TM1], axis=2), (*METRICS, "gpu_throttle_reasons")


@pytest.mark.parametrize("reason", [HARDWARE, THERMAL, BRAKE | SITE_CAP])
def test_gpus_that_say_that_their_hardware_slows_them_are_named_where_no_clock_is_exported(reason: int) -> None:
    values_TMK, metrics = with_reasons(healthy(BEGAN + 50))
    values_TMK[BEGAN:, 5, -1] = reason
    found, _ = watch(values_TMK, metrics=metrics)
    assert [(verdict.machines, verdict.tier) for verdict in found] == [(("m05",), "page")]
    assert [piece.metric for piece in found[0].evidence] == ["gpu_throttle_reasons"]


def test_two_machines_that_say_so_are_a_group() -> None:
    values_TMK, metrics = with_reasons(healthy(BEGAN + 50, machines=12))
    values_TMK[BEGAN:, [2, 9], -1] = THERMAL
    assert [(verdict.machines, verdict.kind) for verdict in watch(values_TMK, metrics=metrics)[0]] == [(("m02", "m09"), "group")]


@pytest.mark.parametrize(("reason", "began"), [(SITE_CAP, BEGAN), (IDLE, BEGAN), (BRAKE, 0)], ids=["site", "idle", "always"])
def test_reasons_that_a_site_sets_and_those_that_have_always_stood_name_no_machine(reason: int, began: int) -> None:
    values_TMK, metrics = with_reasons(healthy(BEGAN + 50))
    values_TMK[:, :, -1] = 0.0
    values_TMK[began:, 5, -1] = reason
    assert watch(values_TMK, metrics=metrics)[0] == []


def test_a_machine_whose_gpus_are_read_no_more_as_the_job_stops_is_named() -> None:
    """They are off the bus, and the driver with them; its network card is still read, and all others spin."""
    values_TMK = healthy(BEGAN + 50)
    values_TMK[BEGAN:, 5, [k for k, name in enumerate(METRICS) if name.startswith(("gpu_", "nvlink_"))]] = np.nan
    goes_on_TMK = values_TMK.copy()
    values_TMK[BEGAN + 3 :, :, WORKS] *= np.array([0.3, 0.6, 0.05, 0.05])
    found, _ = watch(values_TMK)
    assert {verdict.machines for verdict in found} == {("m05",)}
    assert "have not been read" in found[0].evidence[0].message
    assert accused(goes_on_TMK) == []  # an exporter that has ended


@pytest.mark.parametrize(("usual", "share"), [(0.45, 1.0), (0.45, 0.5)], ids=["at its end", "below it"])
def test_a_gauge_at_its_end_does_not_follow_its_peers_beyond_it(usual: float, share: float) -> None:
    """One machine has always been busy throughout, the others half of the time. A stall doubles their duty cycle, and cannot its own."""
    duty_TM = np.random.default_rng(5).normal(usual, 0.005, (BEGAN + 50, 8))
    duty_TM[:, 5] = np.random.default_rng(6).uniform(0.94, 0.96, BEGAN + 50)
    duty_TM[BEGAN:, [m for m in range(8) if m != 5]] *= 2.1
    duty_TM[BEGAN:, 5] *= share
    values_TMK = np.concatenate([healthy(BEGAN + 50), duty_TM[:, :, None]], axis=2)
    values_TMK[BEGAN:, :, WORKS] *= np.array([0.3, 0.6, 0.05, 0.05])
    found = watch(values_TMK, metrics=(*METRICS, "gpu_duty_cycle_ratio"))[0]
    assert {verdict.machines for verdict in found} == (set() if share == 1.0 else {("m05",)})


def test_the_farthest_of_many_machines_that_differ_anew_is_not_named() -> None:
    """What slows the job scatters the activity of all by more than it has ever been; no machine has left the others."""
    rng, slowed = np.random.default_rng(2), healthy(BEGAN + 60, machines=24)
    places_M = np.append(rng.uniform(-0.16, 0.16, 23), -0.24)
    slowed[BEGAN:, :, at("gpu_sm_activity_ratio")] *= np.exp(places_M)
    slowed[BEGAN:, :, [at("nvlink_bandwidth_bytes_per_second"), at("rdma_throughput_bytes_per_second")]] *= 0.4
    assert accused(slowed) == []
    slowed[BEGAN:, 23, [at("gpu_sm_activity_ratio"), at("gpu_power_draw_watts")]] *= np.array([0.2, 0.4])
    assert {item[0] for item in accused(slowed)} == {("m23",)}
