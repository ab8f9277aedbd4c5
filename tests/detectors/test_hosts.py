"""A machine whose host is at fault: busy since the training is slower, keeping its processes waiting, or losing its memory. A page."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, METRICS, WORKS, watch, with_hosts

BEGAN, ROWS = 120, 200
HOST = {  # usual, and how far machines differ from row to row
    "gpu_duty_cycle_ratio": (0.93, 0.01),
    "cpu_usage_ratio": (0.2, 0.02),
    "job_run_delay_ratio": (0.02, 0.005),
    "memory_usage_ratio": (0.3, 0.003),
    "disk_usage_ratio": (0.4, 0.001),
}
NAMES = (*METRICS, *HOST)


def job(slower: float = 1.0, since: int = BEGAN) -> np.ndarray:
    """(T, M, K): a job that gets so much done since then."""
    values_TMK = with_hosts(ROWS, HOST)
    values_TMK[since:, :, WORKS] *= slower
    return values_TMK


def busy(values_TMK: np.ndarray) -> np.ndarray:
    """The processor of one machine is busy, and its GPUs as ever."""
    values_TMK[BEGAN:, 3, at("cpu_usage_ratio")] = 0.7 + np.random.default_rng(2).normal(0.0, 0.03, ROWS - BEGAN)
    return values_TMK


def at(name: str) -> int:
    return NAMES.index(name)


def named(values_TMK: np.ndarray) -> list[tuple[tuple[str, ...], str, float]]:
    """(machines, tier, seconds after it began)."""
    return [(v.machines, v.tier, v.time_s - 1.7e9 - 5.0 * BEGAN) for v in watch(values_TMK, metrics=NAMES)[0]]


@pytest.mark.parametrize("rests", [False, True])
def test_a_machine_whose_processor_is_busy_since_the_training_is_slower_is_paged(rests: bool) -> None:
    """Also in a job that rests for seconds each minute, in which no row shows that it is slower."""
    values_TMK = busy(job(0.8))
    if rests:
        resting = np.flatnonzero(np.arange(ROWS) % 12 < 2)[:, None, None]
        values_TMK[resting, np.arange(8)[None, :, None], np.array(WORKS)[None, None, :]] *= AT_REST
    found = named(values_TMK)
    assert [item[:2] for item in found] == [(("m03",), "page")]
    assert found[0][2] <= 270.0


@pytest.mark.parametrize(
    "values_TMK",
    [
        pytest.param(busy(job()), id="the training is as fast as ever"),
        pytest.param(busy(job(0.8, BEGAN - 40)), id="it was slower for minutes before"),
        pytest.param(busy(job(0.95)), id="it has lost a twentieth"),
    ],
)
def test_a_busy_processor_is_housekeeping_else(values_TMK: np.ndarray) -> None:
    assert named(values_TMK) == []


def test_a_busy_processor_while_the_job_stands_for_a_moment_is_housekeeping() -> None:
    values_TMK = busy(job())
    values_TMK[BEGAN : BEGAN + 30, :, WORKS] *= AT_REST
    assert named(values_TMK) == []


def test_who_shows_a_cause_of_slowness_has_the_first_claim() -> None:
    values_TMK = busy(job(0.8))
    values_TMK[BEGAN:, 5, at("gpu_clock_hertz")] *= 0.7
    assert {item[0] for item in named(values_TMK)} == {("m05",)}


def test_a_pair_whose_processes_wait_for_the_processor_is_paged() -> None:
    values_TMK = job(0.8)
    values_TMK[BEGAN:, [2, 6], at("job_run_delay_ratio")] += np.array([0.5, 0.7])
    assert [item[:2] for item in named(values_TMK)] == [(("m02", "m06"), "page")]


@pytest.mark.parametrize(
    ("a_minute", "at_once", "expected"),
    [
        (0.09, 0.0, [(("m03",), "page")]),
        (0.03, 0.0, []),  # a cache that grows
        (0.0, 0.4, []),  # a second tenant
    ],
)
def test_memory_that_fills_in_even_steps_is_a_leak(a_minute: float, at_once: float, expected: list[object]) -> None:
    values_TMK = job()
    grown_T = np.minimum(at_once + a_minute * 5.0 / 60.0 * np.arange(ROWS - BEGAN), 0.6)
    values_TMK[BEGAN:, 3, at("memory_usage_ratio")] += grown_T
    found = named(values_TMK)
    assert [item[:2] for item in found] == expected
    assert all(after_s <= 200.0 for _, _, after_s in found)


def test_a_tenant_that_comes_beside_a_cache_that_grows_is_no_leak() -> None:
    values_TMK = job()
    since_T = 5.0 * np.arange(ROWS - BEGAN)
    values_TMK[BEGAN:, 3, at("memory_usage_ratio")] += np.minimum(0.036 * since_T / 60.0, 0.25) + 0.06 * (since_T >= 180.0)
    assert named(values_TMK) == []


def test_memory_that_all_take_up_again_is_no_leak() -> None:
    """A job loads after a restart; of seven of eight machines a sample is missing, so that only one fills in even steps."""
    values_TMK = job()
    filled_T = np.minimum(0.09 * 5.0 / 60.0 * np.arange(ROWS - BEGAN), 0.6)
    values_TMK[BEGAN:, :, at("memory_usage_ratio")] += filled_T[:, None]
    values_TMK[BEGAN + 20 : BEGAN + 30, [0, 1, 2, 4, 5, 6, 7], at("memory_usage_ratio")] -= 0.05
    assert named(values_TMK) == []


def test_a_disk_that_is_full_while_the_job_rests_is_paged() -> None:
    values_TMK = job()
    values_TMK[BEGAN:, 3, at("disk_usage_ratio")] = 1.0
    values_TMK[BEGAN:, :, WORKS] *= AT_REST
    values_TMK[BEGAN:, :, at("gpu_duty_cycle_ratio")] *= 0.02
    assert [item[:2] for item in named(values_TMK)] == [(("m03",), "page")]
