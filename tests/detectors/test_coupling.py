"""A standstill that no other machine feels, and clocks that are a minute off."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, INTERVAL_S, USUAL, WORKS, accused, at, healthy, watch, with_hosts

BEGAN = 70


def test_a_standstill_that_no_other_machine_feels_names_none() -> None:
    """Its clock is three minutes behind, and it shows their checkpoint when they have long been at work again."""
    values_TMK = healthy(BEGAN + 80)
    others = [m for m in range(8) if m != 2]
    values_TMK[BEGAN : BEGAN + 10][:, others] *= np.array([*AT_REST, 1.0, 1.0])
    values_TMK[BEGAN + 36 : BEGAN + 46, 2, WORKS] *= AT_REST
    assert accused(values_TMK) == []


@pytest.mark.parametrize(("clock", "congestion"), [(0.7, 1.0), (1.0, 0.01)], ids=["lower-clock-rate", "less-congestion"])
def test_what_comes_with_standing_is_no_witness_of_a_standstill_that_no_other_machine_feels(clock: float, congestion: float) -> None:
    values_TMK = healthy(BEGAN + 80)
    others = [m for m in range(8) if m != 2]
    rests_K = np.array([*AT_REST, clock, congestion])
    values_TMK[BEGAN : BEGAN + 5][:, others] *= rests_K
    values_TMK[BEGAN + 22 : BEGAN + 28, 2] *= rests_K
    assert accused(values_TMK) == []


@pytest.mark.parametrize("late_s", [60.0, *(pytest.param(late_s, marks=pytest.mark.release) for late_s in (90.0, -60.0))])
def test_a_clock_that_is_a_minute_off_names_no_machine_at_a_stop_of_all(late_s: float) -> None:
    """Checkpoints have shown by how much it is off; then the job hangs for another reason."""
    values_TMK = healthy(300)
    for first, rows in ((60, 8), (120, 8), (180, 8), (240, 60)):
        values_TMK[first : first + rows, :, WORKS] *= AT_REST
    late = round(late_s / INTERVAL_S)
    shifted_TK = np.roll(values_TMK[:, 2], late, axis=0)
    values_TMK[abs(late) : -abs(late), 2] = shifted_TK[abs(late) : -abs(late)]
    assert all("m02" not in machines for machines, _, _ in accused(values_TMK[: 300 - abs(late)]))


def test_who_worked_on_while_the_job_stood_shows_later_that_it_stands() -> None:
    """Its clock is 75 s late, and after the stop of half a minute the job sends a fifth of what it sent."""
    values_TMK = healthy(BEGAN + 80)
    others, sent = [m for m in range(8) if m != 2], at("rdma_throughput_bytes_per_second")
    values_TMK[BEGAN : BEGAN + 6][:, others] *= np.array([*AT_REST, 1.0, 1.0])
    values_TMK[BEGAN + 6 :][:, others, sent] *= 0.2
    values_TMK[BEGAN + 15 : BEGAN + 21, 2, WORKS] *= AT_REST
    values_TMK[BEGAN + 21 :, 2, sent] *= 0.2
    assert accused(values_TMK) == []


def test_who_stands_while_the_job_works_again_did_not_stop_it() -> None:
    """Its clock is 80 s early, and it shows the job's last stop when the others only pause: for two minutes that accuses none."""
    values_TMK = healthy(BEGAN + 24)
    others, spins_K = [m for m in range(8) if m != 2], np.array([1.3, 0.45, 0.001, 0.005])
    values_TMK[BEGAN:, 2, WORKS] *= spins_K
    for rests in (slice(BEGAN + 3, BEGAN + 5), slice(BEGAN + 16, None)):
        values_TMK[rests][:, others] *= np.array([*spins_K, 1.0, 1.0])
    assert accused(values_TMK) == []


def test_who_ends_and_lets_go_of_its_memory_while_the_others_work_on_is_not_named() -> None:
    """A job ends machine by machine; what is let go comes with standing, and is no witness of its own."""
    values_TMK = with_hosts(BEGAN + 12, {"gpu_memory_used_ratio": (0.7, 0.003), "cpu_usage_ratio": (0.3, 0.01)})
    values_TMK[BEGAN:, 2, WORKS] *= AT_REST
    values_TMK[BEGAN:, 2, len(USUAL) :] *= 0.05
    names = (*USUAL, "gpu_memory_used_ratio", "cpu_usage_ratio")
    assert watch(values_TMK, metrics=names)[0] == []
