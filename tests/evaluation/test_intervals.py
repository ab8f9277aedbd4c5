"""Intervals cover what they should, are the same every time, and pair what belongs together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from minder.offline.evaluation.intervals import bootstrap, f1_gain, poisson_upper, wilson
from minder.offline.evaluation.reliability import measure_reliability
from minder.offline.evaluation.scoring import Judged, summarise


def outcomes(found: int, wrong: int = 0, missed: int = 0, quiet: int = 0, delay_s: float = 20.0) -> list[Judged]:
    kinds = [("found", "hang", delay_s)] * found + [("wrong", "hang", 5.0)] * wrong + [("missed", "hang", None)] * missed
    kinds += [("quiet", None, None)] * quiet
    return [Judged(f"r{index}", fault, outcome, delay) for index, (outcome, fault, delay) in enumerate(kinds)]


def test_values_are_those_of_the_summary_and_intervals_contain_them() -> None:
    judged = outcomes(30, 4, 6, 20)
    figures, total = bootstrap(judged), summarise(judged)
    for name in ("precision", "recall", "f1", "median_delay_s"):
        assert figures[name].value == pytest.approx(getattr(total, name))
        assert figures[name].low <= figures[name].value <= figures[name].high
    assert figures["precision"].low < figures["precision"].high < 1.0
    assert bootstrap(judged) == figures


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Recall 0.8 on 60 faults each: of 100 intervals of 95 %, some 95 contain it."""
    rng = np.random.default_rng(5)
    covered = 0
    for _ in range(100):
        found = int(rng.binomial(60, 0.8))
        figure = bootstrap(outcomes(found, missed=60 - found), resamples=400)["recall"]
        covered += figure.low <= 0.8 <= figure.high
    assert 88 <= covered <= 100


def test_nothing_to_measure_is_nan_and_never_zero() -> None:
    assert all(math.isnan(figure.value) for figure in bootstrap([]).values())
    healthy = bootstrap(outcomes(0, quiet=5))
    assert math.isnan(healthy["recall"].value) and math.isnan(healthy["precision"].value)
    assert math.isnan(wilson(0, 0).value)


def test_wilson_stays_honest_where_all_agree() -> None:
    figure = wilson(10, 10)
    assert (figure.value, figure.high) == (1.0, 1.0)
    assert figure.low == pytest.approx(0.7225, abs=1e-3)  # Brown, Cai, DasGupta 2001, table of Wilson's interval
    assert wilson(0, 10).high == pytest.approx(1.0 - figure.low)


def test_the_bound_of_a_rate_is_the_poisson_one() -> None:
    assert poisson_upper(0) == pytest.approx(-math.log(0.05))
    for events in (1, 4, 20):
        mean = poisson_upper(events)
        left = sum(math.exp(-mean) * mean**k / math.factorial(k) for k in range(events + 1))
        assert left == pytest.approx(0.05, abs=1e-6)


def test_a_clear_gain_is_sure_and_a_draw_is_not() -> None:
    old = outcomes(20, missed=20)
    better = [Judged(item.recording, item.fault, "found", 20.0) for item in old]
    gain, sure = f1_gain(old, better)
    assert gain.value == pytest.approx(1.0 - 2 / 3) and gain.low > 0.0 and sure > 0.99
    draw, even = f1_gain(old, old)
    assert (draw.value, draw.low, draw.high, even) == (0.0, 0.0, 0.0, 0.5)
    assert f1_gain(better, old)[1] < 0.01


def test_only_the_same_recordings_can_be_compared() -> None:
    with pytest.raises(ValueError, match="same recordings"):
        f1_gain(outcomes(3), outcomes(4))


def test_confidence_that_means_what_it_says_has_no_calibration_error() -> None:
    sure = [Judged(f"r{index}", "hang", "found" if index < 9 else "wrong", 5.0, ("m",), 0.9) for index in range(10)]
    found = measure_reliability([*sure, Judged("q", None, "quiet")])
    assert (found.count, len(found.bins), found.bins[0].count) == (10, 1, 10)
    assert found.error == pytest.approx(0.0) and found.brier == pytest.approx(0.09)
    boast = [Judged(item.recording, "hang", "wrong", 5.0, ("m",), 1.0) for item in sure]
    assert measure_reliability(boast).error == pytest.approx(1.0)
    assert math.isnan(measure_reliability([]).error)
