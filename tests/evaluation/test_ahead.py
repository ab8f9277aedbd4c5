"""Scored ahead in blocks, a detector says of every row what it says row by row as live."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.load_detector import load_detector
from minder.ingest.windows import cut_rows, rows_of
from minder.model.evidence import Scores
from minder.model.telemetry import Window
from minder.offline.evaluation.ahead import ScoredAhead, score_ahead

METRICS = ("cpu_usage_ratio", "gpu_duty_cycle_ratio", "gpu_power_draw_watts", "gpu_tensor_activity_ratio")
ROWS, MACHINES = 600, 6


def lively(seed: int) -> Window:
    """One machine turns odd, one has gaps, one reports a metric only from row 40 on."""
    noise_TMK = np.random.default_rng(seed).standard_normal((ROWS, MACHINES, len(METRICS)))
    values_TMK = np.array([0.5, 0.9, 500.0, 0.4]) * (1 + 0.02 * noise_TMK)
    values_TMK[250:, 2, 1:] *= 0.2
    values_TMK[300:310, 3] = np.nan
    values_TMK[:40, 4, 2] = np.nan
    names = tuple(f"m{m}" for m in range(MACHINES))
    return Window(np.arange(ROWS, dtype=float), names, METRICS, values_TMK, np.ones((ROWS, MACHINES), dtype=bool))


@pytest.mark.parametrize("name", ["minder", "minder-raw", "minder-con", "mahalanobis"])
@pytest.mark.lab
def test_scores_made_ahead_are_those_of_single_rows(name: str) -> None:
    pytest.importorskip("torch")
    window, make = lively(1), load_detector(name)
    ahead, live = score_ahead(make({}), [window]), make({})
    assert isinstance(ahead, ScoredAhead)
    rows = list(rows_of(window))
    found: list[tuple[Scores, Scores]] = [pair for row in rows for pair in zip(ahead.score(row), live.score(row), strict=True)]
    assert len(found) == ROWS
    for made, single in found:
        np.testing.assert_array_equal(made.score_M, single.score_M)
        assert (made.time_s, made.evidence, made.since_s) == (single.time_s, single.evidence, single.since_s)
    assert max(made.score_M.max() for made, _ in found) > 0  # there was a candidate, or nothing was compared


def test_a_detector_that_learns_while_it_runs_is_not_scored_ahead() -> None:
    detector = DefaultDetector()
    assert score_ahead(detector, [lively(1)]) is detector


def test_rows_of_another_window_are_refused() -> None:
    window = lively(2)
    ahead = score_ahead(load_detector("minder-raw")({}), [window])
    ahead.score(cut_rows(window, 0, 5))
    with pytest.raises(ValueError, match="next rows"):
        ahead.score(cut_rows(window, 4, 6))


def test_its_state_goes_on_elsewhere() -> None:
    window, make = lively(3), load_detector("minder-raw")
    ahead, whole = ScoredAhead(make({}), [window]), make({}).score(window)
    ahead.score(cut_rows(window, 0, 7))
    resumed = ScoredAhead(make({}), [window])
    resumed.load(ahead.state())
    rest = resumed.score(cut_rows(window, 7, ROWS))
    assert [item.score_M.tolist() for item in rest] == [item.score_M.tolist() for item in whole[7:]]
