"""One metric, or one exporter's, that all else of its machine contradicts."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, METRICS, WORKS, accused, at, healthy, watch

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


PROFILED = (*METRICS, "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio")
FIELDS = ("gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio")
UNCLOCKED = tuple(name for name in (*PROFILED, "gpu_temperature_celsius") if name != "gpu_clock_hertz")
LINKS = ("nvlink_bandwidth_bytes_per_second", "rdma_throughput_bytes_per_second")


@pytest.mark.parametrize(
    ("wrong", "share"),
    [(FIELDS, 0.1), (FIELDS, 0.5), ((*FIELDS, LINKS[0]), 0.1), (LINKS, 0.25)],
    ids=["fields-tenth", "fields-half", "fields-and-links-tenth", "links-quarter"],
)
def test_what_one_exporter_reads_is_one_word_and_the_rest_of_the_machine_contradicts_it(wrong: tuple[str, ...], share: float) -> None:
    values_TMK = _profiled(BEGAN + 70)
    values_TMK[BEGAN:, 2, [PROFILED.index(name) for name in wrong]] *= share
    found, scores = watch(values_TMK, metrics=PROFILED)
    assert found == []
    assert all(name in scores[-1].not_judged["m02"] for name in wrong)


def test_profiling_fields_that_fall_with_the_power_are_believed() -> None:
    values_TMK = _profiled(BEGAN + 70)
    values_TMK[BEGAN:, 2, [PROFILED.index(name) for name in (*FIELDS, *LINKS)]] *= 0.1
    values_TMK[BEGAN:, 2, at("gpu_power_draw_watts")] *= 0.4
    assert {verdict.machines for verdict in watch(values_TMK, metrics=PROFILED)[0]} == {("m02",)}


@pytest.mark.parametrize(("cooler", "named"), [(8.0, True), (0.0, False)], ids=["cooler", "as warm as ever"])
def test_power_that_falls_while_its_gpus_cool_is_believed(cooler: float, named: bool) -> None:
    """The clock rates are not exported: a capped GPU is as busy as ever, and draws less. A broken sensor cools none."""
    warm_TM1 = np.random.default_rng(4).normal(60.0, 0.5, (BEGAN + 70, 8, 1))
    values_TMK = np.concatenate([_profiled(BEGAN + 70), warm_TM1], axis=2)
    values_TMK[BEGAN:, :, WORKS] *= 0.8
    values_TMK[BEGAN:, 2, at("gpu_power_draw_watts")] *= 0.65
    values_TMK[BEGAN:, 2, -1] -= cooler
    found, _ = watch(values_TMK[:, :, [k for k in range(values_TMK.shape[2]) if k != at("gpu_clock_hertz")]], metrics=UNCLOCKED)
    assert {verdict.machines for verdict in found} == ({("m02",)} if named else set())


def test_an_exporter_of_gpus_that_writes_zeros_for_values_is_contradicted_by_the_network() -> None:
    """Of most devices for 90 s, other ones at each scrape, in every metric that it reads; the machine sends on as all the others do."""
    values_TMK = _profiled(BEGAN + 90)
    read = [k for k, name in enumerate(PROFILED) if name.startswith(("gpu_", "nvlink_", "pcie_"))]
    zeros = np.random.default_rng(3).choice([0.0, 0.05, 0.25], size=(90, len(read)))
    values_TMK[BEGAN:, 2, read] *= zeros
    found, scores = watch(values_TMK, metrics=PROFILED)
    assert found == []
    assert "gpu_power_draw_watts" in scores[-1].not_judged["m02"] and "nvlink_bandwidth" in scores[-1].not_judged["m02"]


@pytest.mark.parametrize(("share", "slowed", "named"), [(0.5, False, False), (0.5, True, True), (0.7, False, True), (0.35, False, True)])
def test_traffic_that_halves_while_nothing_is_slowed_is_counted_one_way(share: float, slowed: bool, named: bool) -> None:
    """Steps that are as fast as ever move as many bytes; a slow link takes another share, or slows the others."""
    values_TMK = _profiled(BEGAN + 70)
    values_TMK[BEGAN:, 2, at("rdma_throughput_bytes_per_second")] *= share
    if slowed:
        values_TMK[BEGAN:, :, WORKS] *= 0.6
    found, scores = watch(values_TMK, metrics=PROFILED)
    assert {verdict.machines for verdict in found} == ({("m02",)} if named else set())
    assert named or "rdma_throughput_bytes_per_second" in scores[-1].not_judged["m02"]


def _profiled(rows: int) -> np.ndarray:
    values_TMK, others_TMK = healthy(rows), healthy(rows, seed=4)[:, :, [0, 0]]
    return np.concatenate([values_TMK, others_TMK * [0.5, 0.6]], axis=2)


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
