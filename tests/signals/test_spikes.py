"""Loss and gradient norm against their own recent past."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest

from minder.edge.signals.spikes import Spike, StepSpikes


def losses(values: Iterable[float], steps: StepSpikes | None = None) -> list[Spike]:
    steps = steps or StepSpikes()
    return [spike for step, value in enumerate(values) for spike in steps.read(step, value)]


def norms(values: Iterable[float]) -> list[Spike]:
    steps = StepSpikes()
    return [spike for step, value in enumerate(values) for spike in steps.read(step, None, value)]


def test_five_times_the_median_is_a_spike_and_four_times_is_none() -> None:
    assert losses([2.0] * 20 + [9.9]) == []
    assert losses([2.0] * 20 + [10.0]) == [Spike("loss", 20, 10.0, 2.0)]
    assert norms([0.5] * 20 + [2.6]) == [Spike("gradient norm", 20, 2.6, 0.5)]


def test_a_spike_is_told_once_however_long_it_lasts_and_a_second_one_again() -> None:
    values = [2.0] * 20 + [12.0, 30.0, 2.0, 15.0] + [2.0] * 20 + [14.0]
    assert [spike.step for spike in losses(values)] == [20, 44]


def test_one_that_stays_is_the_new_level() -> None:
    values = [1.0] * 20 + [8.0] * 60
    assert [spike.step for spike in losses(values)] == [20]
    assert [spike.step for spike in losses([*values, 41.0])] == [20, 80]


@pytest.mark.parametrize("drop", [0.9, 0.99])
def test_a_falling_loss_is_no_spike_and_hides_none(drop: float) -> None:
    falling = [10.0 * drop**step + 0.5 for step in range(120)]
    assert losses(falling) == []
    assert [spike.step for spike in losses([*falling, 6.0 * falling[-1]])] == [120]


def test_nothing_is_unusual_before_ten_steps() -> None:
    assert losses([1.0] * 9 + [50.0]) == []
    assert len(losses([1.0] * 10 + [50.0])) == 1


def test_a_noisy_series_is_used_to_its_height() -> None:
    draw = random.Random(3)
    assert norms(draw.choice([0.1, 0.1, 0.1, 0.1, 0.9]) * draw.uniform(0.9, 1.1) for _ in range(400)) == []


def test_next_to_nothing_times_ten_is_still_next_to_nothing() -> None:
    assert losses([1e-4] * 20 + [1e-3]) == []
    assert norms([0.0] * 20 + [1e-4]) == []
    assert len(losses([1e-4] * 20 + [0.06])) == 1


def test_rewards_and_likelihoods_have_no_ratio() -> None:
    assert losses([-3.0] * 20 + [15.0]) == []
    assert losses([0.1, -0.1] * 10 + [15.0]) == []


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_not_finite_is_told_at_once_and_once(value: float) -> None:
    (spike,) = losses([2.0, value, value, value])
    assert spike.step == 1 and not math.isfinite(spike.value)


def test_a_job_that_begins_again_is_seen_anew() -> None:
    steps = StepSpikes()
    losses([1.0] * 20, steps)
    assert list(steps.read(5, 50.0)) == []


def test_what_is_not_told_is_no_value() -> None:
    assert list(StepSpikes().read(3)) == []
