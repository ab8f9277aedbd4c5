"""A deviation convicts if the job, or another family of metrics of the machine, shows it too."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, INTERVAL_S, WORKS, accused, at, healthy, watch

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


def test_a_standstill_that_no_other_machine_feels_names_none() -> None:
    """Its clock is three minutes behind, and it shows their checkpoint when they have long been at work again."""
    values_TMK = healthy(BEGAN + 80)
    others = [m for m in range(8) if m != 2]
    values_TMK[BEGAN : BEGAN + 10][:, others] *= np.array([*AT_REST, 1.0, 1.0])
    values_TMK[BEGAN + 36 : BEGAN + 46, 2, WORKS] *= AT_REST
    assert accused(values_TMK) == []


@pytest.mark.parametrize("late_s", [60.0, 90.0, -60.0])
def test_a_clock_that_is_a_minute_off_names_no_machine_at_a_stop_of_all(late_s: float) -> None:
    """Checkpoints have shown by how much it is off; then the job hangs for another reason."""
    values_TMK = healthy(300)
    for first, rows in ((60, 8), (120, 8), (180, 8), (240, 60)):
        values_TMK[first : first + rows, :, WORKS] *= AT_REST
    late = round(late_s / INTERVAL_S)
    shifted_TK = np.roll(values_TMK[:, 2], late, axis=0)
    values_TMK[abs(late) : -abs(late), 2] = shifted_TK[abs(late) : -abs(late)]
    assert all("m02" not in machines for machines, _, _ in accused(values_TMK[: 300 - abs(late)]))


@pytest.mark.parametrize(("sends_on", "named"), [(True, []), (False, [(("m02",), "machine")])])
def test_who_works_on_while_all_stand_is_named_unless_it_sends_on_to_them(sends_on: bool, named: list[tuple[tuple[str, ...], str]]) -> None:
    """A machine that is stuck in its computation keeps the others waiting and sends them nothing; one whose clock is two minutes behind
    shows what was before."""
    values_TMK = healthy(BEGAN + 24)
    others = [m for m in range(8) if m != 2]
    values_TMK[BEGAN:, others] *= np.array([0.3, 0.6, 0.05, 0.005, 1.0, 1.0])
    if not sends_on:
        values_TMK[BEGAN:, 2, WORKS] *= np.array([1.6, 1.2, 0.02, 0.005])
    assert sorted({item[:2] for item in accused(values_TMK)}) == named
