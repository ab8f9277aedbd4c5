"""Which trial is taken: enough precision first, then F1, then speed; and what a training learns as usual."""

from __future__ import annotations

import math

import numpy as np
import pytest

from minder.model.errors import BadInputError
from minder.model.telemetry import Window
from minder.offline.evaluation.scoring import Summary
from minder.offline.training.network import sample_windows
from minder.offline.training.search import Trial, choose_trial
from minder.offline.training.usual import find_ranges


def trial(name: float, precision: float, f1: float, delay_s: float = 30.0) -> Trial:
    return Trial({"patience_s": name}, Summary(precision, 0.5, f1, delay_s, 1, 1, 1, 1))


def test_precision_comes_first_then_f1_then_speed() -> None:
    trials = [trial(1, 0.90, 0.99), trial(2, 0.97, 0.90, 40.0), trial(3, 0.99, 0.90, 20.0), trial(4, 0.99, 0.80, 5.0)]
    assert choose_trial(trials, 0.95).parameters == {"patience_s": 3}
    assert choose_trial(trials, 0.995).parameters == {"patience_s": 3}, "nobody is sure enough: the surest, and of equals the better"
    assert choose_trial([trial(1, math.nan, math.nan, math.nan), trial(2, 0.5, 0.5)], 0.95).parameters == {"patience_s": 2}


def window(metric: str, values_TM: np.ndarray) -> Window:
    rows, machines = values_TM.shape
    names = tuple(f"m{index}" for index in range(machines))
    return Window(np.arange(rows, dtype=float), names, (metric,), values_TM[:, :, None], np.ones((rows, machines), dtype=bool))


def test_a_range_holds_what_was_seen_and_stays_possible() -> None:
    rng = np.random.default_rng(0)
    found = find_ranges(
        [window("gpu_power_draw_watts", 500 + 20 * rng.standard_normal((500, 4))), window("cpu_usage_ratio", np.ones((9, 2)))]
    )
    low, high = found["gpu_power_draw_watts"]
    assert 400 < low < 440 and 560 < high < 600
    assert found["cpu_usage_ratio"][1] == 1.0 and found["cpu_usage_ratio"][0] < 1.0


def test_totals_and_bit_masks_have_no_range() -> None:
    values = np.arange(20.0).reshape(10, 2)
    assert find_ranges([window("link_downs_total", values), window("gpu_throttle_reasons", values)]) == {}


def test_windows_are_scaled_and_without_gaps() -> None:
    values_TM = np.full((40, 3), 500.0)
    values_TM[::7, 0] = np.nan
    found = sample_windows([window("gpu_power_draw_watts", values_TM)], "gpu_power_draw_watts", (0.0, 1000.0), 100, 1)
    assert found.shape == (100, 8) and np.allclose(found, 0.5)
    with pytest.raises(BadInputError, match="no healthy window"):
        sample_windows([window("gpu_power_draw_watts", values_TM[:5])], "gpu_power_draw_watts", (0.0, 1.0), 10, 1)
