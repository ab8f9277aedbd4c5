"""A rank's own gradient against its own past."""

from __future__ import annotations

import math

from minder.edge.worker.spikes import GradientSpikes

PART = (0, 1_000)


def look(past: GradientSpikes, values: list[float], part: tuple[int, int] = PART, first: int = 0) -> list[int]:
    return [step for step, value in enumerate(values, first) if past.look(part, value, step) is not None]


def test_five_thousand_times_the_mean_is_a_spike() -> None:
    assert look(GradientSpikes(), [2.0] * 40 + [9_900.0]) == []
    assert look(GradientSpikes(), [2.0] * 40 + [10_100.0]) == [40]


def test_the_usual_value_is_the_mean_before_this_step() -> None:
    past = GradientSpikes()
    look(past, [1.0] * 30 + [3.0] * 30)
    usual = past.look(PART, 1e6, 60)
    assert usual is not None and 1.9 < usual < 2.1


def test_a_spike_hides_no_later_one() -> None:
    """It enters the mean no higher than the threshold: 1e30 would be usual for thousands of steps."""
    assert look(GradientSpikes(), [1.0] * 1_000 + [1e30] + [1.0] * 50 + [1e6]) == [1_000, 1_051]


def test_nothing_is_told_before_twenty_steps() -> None:
    assert look(GradientSpikes(), [1.0] * 19 + [1e9]) == []


def test_a_part_that_rarely_gets_a_gradient_is_compared_with_when_it_had_one() -> None:
    assert look(GradientSpikes(), [0.0] * 1_000 + [1.0]) == []
    past = GradientSpikes()
    assert look(past, ([0.0] * 50 + [1.0]) * 30) == []
    assert past.look(PART, 1e5, 5_000) is not None


def test_one_step_is_told_once_and_parts_of_another_size_begin_anew() -> None:
    past = GradientSpikes()
    look(past, [1.0] * 30)
    look(past, [1.0] * 30, (1, 500))
    assert past.look(PART, 1e6, 30) is not None
    assert past.look((1, 500), 1e6, 30) is None
    assert past.look((0, 2_000), 1e6, 31) is None


def test_not_finite_is_not_for_here() -> None:
    past = GradientSpikes()
    look(past, [1.0] * 30)
    assert past.look(PART, math.inf, 30) is None and past.look(PART, math.nan, 30) is None
