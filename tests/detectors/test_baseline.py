"""What is usual is learned alike on the short way, where all series are equally old and nothing is missing, and on the long one."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.baseline import Baseline, Lesson
from minder.diagnose.detectors.presence import Presence
from minder.diagnose.detectors.traits import TraitTable
from tests.detectors.one_stage import one_stage

METRICS = ("gpu_duty_cycle_ratio", "gpu_power_draw_watts", "cpu_usage_ratio")
MACHINES = tuple(f"m{m}" for m in range(7))


def remembering(seconds: float) -> Baseline:
    """So much data behind every series; deviations and usual sizes of all kinds."""
    rng = np.random.default_rng(0)
    baseline = one_stage(Baseline, MACHINES, METRICS)
    state = baseline.state
    shape = (len(METRICS), len(MACHINES))
    state.n_KM = np.full(shape, seconds, dtype=np.float32)
    state.all_quick.smooth_KM, state.all_quick.spread_KM, state.baseline_KM = (
        rng.standard_normal(shape).astype(np.float32) ** 2 for _ in range(3)
    )
    return baseline


def lesson_of(shape: tuple[int, ...], *, moved: bool = False) -> Lesson:
    return Lesson(np.ones(shape, dtype=bool), 3.0, 30.0, np.full(shape, moved))


@pytest.mark.parametrize("seconds", [0.0, 12.0, 29.0, 400.0])
def test_series_are_learned_alike_whether_all_are_equally_old_or_one_is_not(seconds: float) -> None:
    alike, apart = remembering(seconds), remembering(seconds)
    apart.state.n_KM[2, 6] += 1.0  # of the last metric, so that the first two must come out the same
    rest_KM = np.random.default_rng(1).standard_normal((len(METRICS), len(MACHINES))).astype(np.float32)
    lesson = lesson_of(rest_KM.shape)
    for baseline in (alike, apart):
        baseline.learn_usual(TraitTable(METRICS), rest_KM, lesson, staged=False)
    for name in ("n_KM", "baseline_KM"):
        assert np.array_equal(getattr(alike.state, name)[:2], getattr(apart.state, name)[:2]), name
    for name in ("spread_KM", "unit_KM"):
        assert np.array_equal(getattr(alike.state.all_quick, name)[:2], getattr(apart.state.all_quick, name)[:2]), name
    assert np.isinf(alike.state.all_quick.unit_KM).all() == (seconds + 3.0 < 30.0)


def test_who_has_news_is_seen_alike_whether_all_have_or_one_repeats_itself() -> None:
    rng, traits = np.random.default_rng(2), TraitTable(METRICS)
    everybody, all_but_one = (one_stage(Presence, MACHINES, METRICS) for _ in range(2))
    whole_M = np.ones(len(MACHINES), dtype=bool)
    raw_KM = np.zeros((len(METRICS), len(MACHINES)), dtype=np.float32)
    for second in range(12):
        before_KM, raw_KM = raw_KM, rng.uniform(0.2, 0.8, raw_KM.shape).astype(np.float32)
        stuck_KM = raw_KM.copy()
        stuck_KM[:, 6] = before_KM[:, 6] if second % 2 else raw_KM[:, 6]
        first = everybody.observe_row(traits, float(second), raw_KM, whole_M)
        second_look = all_but_one.observe_row(traits, float(second), stuck_KM, whole_M)
        raw_KM = stuck_KM
        assert first.news_M[:6].all() and np.array_equal(first.news_M[:6], second_look.news_M[:6])
        assert bool(second_look.news_M[6]) == (second % 2 == 0)
        assert np.array_equal(first.since_news_M[:6], second_look.since_news_M[:6])
    for name in ("interval_M", "news_M", "heard_M"):
        assert np.array_equal(getattr(everybody.state, name)[:6], getattr(all_but_one.state, name)[:6]), name
    assert np.array_equal(everybody.state.repeats_KM[:, :6], all_but_one.state.repeats_KM[:, :6])
    assert all_but_one.state.repeats_KM[0, 6] == 1.0 and everybody.state.repeats_KM[0, 6] == 0.0


def standing_after(samples: list[float], *, moved: bool = False) -> float:
    """Where one series is said to stand after these samples, that of the others all being calm for 20 minutes."""
    baseline, rng = remembering(1200.0), np.random.default_rng(2)
    shape = (len(METRICS), len(MACHINES))
    state = baseline.state
    state.baseline_KM = np.zeros(shape, dtype=np.float32)
    state.all_quick.smooth_KM = np.full(shape, 0.02, dtype=np.float32)
    state.all_quick.spread_KM = np.full(shape, 0.02, dtype=np.float32)
    for sample in [0.0, *samples]:
        rest_KM = rng.normal(0.0, 0.001, shape).astype(np.float32)
        rest_KM[0, 4] = sample - state.baseline_KM[0, 4]
        baseline.learn_usual(TraitTable(METRICS), rest_KM, lesson_of(shape, moved=moved), staged=False)
    return float(state.baseline_KM[0, 4])


def test_a_single_sample_hardly_moves_a_machines_usual_place_however_far_it_is() -> None:
    """One that shows a pause before all others do was learned, and accused the machine of its usual activity ten minutes later."""
    assert abs(standing_after([-50.0])) < 0.01


def test_a_place_that_a_machine_keeps_becomes_its_usual_one() -> None:
    assert standing_after([0.1] * 500) == pytest.approx(0.1, rel=0.05)
    assert standing_after([-2.0] * 500, moved=True) == pytest.approx(-2.0, rel=0.05)
