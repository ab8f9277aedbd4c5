"""What stays: a small deviation of one metric names its machine after minutes; what ends, or is shared, names nobody."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.persistence import Persistence
from minder.model.evidence import Verdict
from minder.model.telemetry import Window
from tests.detectors.judged import judged
from tests.detectors.one_stage import one_stage

METRICS = ("gpu_sm_activity_ratio", "nvlink_bandwidth_bytes_per_second", "memory_usage_ratio")
MACHINES, ROWS, INTERVAL_S = 12, 260, 5.0


def healthy() -> np.ndarray:
    """(T, M, K): factors around 1."""
    return np.exp(np.random.default_rng(5).normal(0.0, [0.02, 0.03, 0.002], (ROWS, MACHINES, len(METRICS))))


def told(factors_TMK: np.ndarray) -> list[Verdict]:
    """Accusations; times in seconds since the first row."""
    names = tuple(f"m{m:02d}" for m in range(MACHINES))
    values_TMK = factors_TMK * np.array([0.6, 2e11, 0.5])
    window = Window(INTERVAL_S * np.arange(ROWS), names, METRICS, values_TMK, np.full((ROWS, MACHINES), True))
    return [verdict for verdict in judged(window)[0] if verdict.kind != "recovered"]


def test_a_link_that_lost_a_quarter_of_its_speed_is_paged_within_seven_minutes() -> None:
    factors_TMK = healthy()
    factors_TMK[120:, 4, 1] *= 0.75
    found = told(factors_TMK)
    assert {(verdict.machines, verdict.tier) for verdict in found} == {(("m04",), "page")}
    assert 180.0 <= found[0].time_s - 120 * INTERVAL_S <= 420.0


@pytest.mark.parametrize("machines", [[4], [4, 9]])
def test_what_ends_after_two_minutes_or_is_shared_is_nobodys_fault(machines: list[int]) -> None:
    factors_TMK = healthy()
    until = 120 + (24 if len(machines) == 1 else 140)
    factors_TMK[120:until, machines, 1] *= 0.75
    assert told(factors_TMK) == []


def test_an_echo_of_several_metrics_that_came_back_adds_nothing() -> None:
    factors_TMK = healthy()
    factors_TMK[120:125, 4, :2] *= 0.2  # not enough by itself: two rows of echoes would convict
    assert told(factors_TMK) == []


def test_a_page_cache_that_shrank_is_nobodys_fault_however_long_it_lasts() -> None:
    factors_TMK = healthy()
    factors_TMK[120:, 4, 2] *= 0.75
    assert told(factors_TMK) == []


def follow(persistence: Persistence, clear: list[float], news: list[float], rows: int = 1) -> list[float]:
    for _ in range(rows):
        persistence.update_persistence(np.array(clear), np.array(news), 7.5)
    return np.round(persistence.state.persistence_s_M, 1).tolist()  # type: ignore[no-any-return]


def test_seconds_count_for_one_alone_that_has_news() -> None:
    persistence = one_stage(Persistence, ["a", "b", "c"], [])
    assert follow(persistence, [0.9, 0.0, 0.0], [5.0, 5.0, 5.0], rows=10) == [50.0, 0.0, 0.0]
    assert follow(persistence, [0.9, 0.0, 0.0], [0.0, 5.0, 5.0]) == [50.0, 0.0, 0.0]  # no news of it
    assert follow(persistence, [0.9, 0.0, 0.0], [60.0, 5.0, 5.0]) == [57.5, 0.0, 0.0]  # late news say no more than timely ones
    assert follow(persistence, [0.9, 0.9, 0.0], [5.0, 5.0, 5.0], rows=40)[1] == 0.0
    assert follow(persistence, [0.9, 0.0, 0.0], [5.0, 5.0, 5.0], rows=100)[0] == 300.0
    assert follow(persistence, [0.0, 0.0, 0.0], [5.0, 5.0, 5.0], rows=36)[0] < 20.0  # three minutes later
