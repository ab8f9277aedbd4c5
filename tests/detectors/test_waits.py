"""A machine that waits for its host, alone: its GPUs are busy less, it is kept from the processor, or its host has run full. A page."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import METRICS, watch, with_hosts

from minder.model.evidence import Verdict

BEGAN, ROWS = 90, 190
HOST = {  # usual, and how far machines differ from row to row
    "gpu_duty_cycle_ratio": (0.93, 0.01),
    "gpu_graphics_activity_ratio": (0.95, 0.01),
    "cpu_throttled_ratio": (0.01, 0.005),
    "memory_usage_ratio": (0.5, 0.003),
    "disk_usage_ratio": (0.4, 0.001),
}
NAMES = (*METRICS, *HOST)


def job() -> np.ndarray:
    """(T, M, K): a job at work in which nothing happens."""
    return with_hosts(ROWS, HOST)


def at(name: str) -> int:
    return NAMES.index(name)


def named(values_TMK: np.ndarray) -> list[Verdict]:
    return watch(values_TMK, metrics=NAMES)[0]


@pytest.mark.parametrize(
    ("metric", "value", "noise"),
    [
        ("gpu_duty_cycle_ratio", 0.78, 0.06),  # by fits and starts: no row by itself is far off
        ("cpu_throttled_ratio", 0.4, 0.03),
        ("memory_usage_ratio", 0.985, 0.002),
        ("disk_usage_ratio", 1.0, 0.0),
    ],
)
def test_a_machine_that_waits_for_its_host_is_paged(metric: str, value: float, noise: float) -> None:
    values_TMK = job()
    values_TMK[BEGAN:, 3, at(metric)] = np.clip(value + np.random.default_rng(2).normal(0.0, noise, ROWS - BEGAN), 0.0, 1.0)
    if metric == "gpu_duty_cycle_ratio":
        values_TMK[BEGAN:, 3, at("gpu_graphics_activity_ratio")] = values_TMK[BEGAN:, 3, at(metric)]
    found = named(values_TMK)
    assert [(verdict.machines, verdict.tier) for verdict in found] == [(("m03",), "page")]
    assert metric in {piece.metric for piece in found[0].evidence}
    assert all(piece.expected is None or np.isfinite(piece.expected) for piece in found[0].evidence)
    assert found[0].time_s - 1.7e9 - 5.0 * BEGAN <= 240.0


def test_a_machine_that_has_waited_from_its_first_step_on_is_paged() -> None:
    """A fifth below all others in how busy its GPUs are, and never otherwise."""
    values_TMK = job()
    values_TMK[:, 3, [at("gpu_duty_cycle_ratio"), at("gpu_graphics_activity_ratio")]] *= 0.68
    assert [(verdict.machines, verdict.tier) for verdict in named(values_TMK)] == [(("m03",), "page")]


def test_a_wait_of_two_minutes_or_of_two_machines_is_nothing() -> None:
    short_TMK, shared_TMK = job(), job()
    busy_k = [at("gpu_duty_cycle_ratio"), at("gpu_graphics_activity_ratio")]
    short_TMK[BEGAN : BEGAN + 18, 3, busy_k] -= 0.15
    for m in (3, 4):
        shared_TMK[BEGAN:, m, busy_k] -= 0.15
    assert named(short_TMK) == named(shared_TMK) == []


def test_a_duty_cycle_that_falls_while_the_graphics_activity_goes_on_is_a_broken_metric() -> None:
    values_TMK = job()
    values_TMK[BEGAN:, 3, at("gpu_duty_cycle_ratio")] *= 0.85
    assert named(values_TMK[: BEGAN + 34]) == []


def test_who_stays_while_all_others_become_busier_does_not_wait() -> None:
    values_TMK = job()
    values_TMK[:BEGAN, :, at("gpu_duty_cycle_ratio")] -= 0.25
    values_TMK[BEGAN:, 3, at("gpu_duty_cycle_ratio")] -= 0.25
    assert named(values_TMK[: BEGAN + 60]) == []


def test_a_rest_of_forty_seconds_that_still_echoes_is_nothing() -> None:
    values_TMK = job()
    values_TMK[BEGAN : BEGAN + 8, 3, [at("gpu_duty_cycle_ratio"), at("gpu_graphics_activity_ratio")]] = 0.0
    assert named(values_TMK) == []


def test_a_disk_that_has_always_been_full_and_a_large_page_cache_are_nothing() -> None:
    values_TMK = job()
    values_TMK[:, 3, at("disk_usage_ratio")] = 1.0
    values_TMK[BEGAN:, 5, at("memory_usage_ratio")] = 0.9
    assert named(values_TMK) == []
