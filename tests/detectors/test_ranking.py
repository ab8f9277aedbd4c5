"""Machines of which nothing is known have an order: who stands farthest from the middle of all comes first, and is not accused for it."""

from __future__ import annotations

import numpy as np

from minder.diagnose.detectors.default import DefaultDetector
from minder.ingest.windows import rows_of
from minder.model.telemetry import Window

METRICS, NAMES = ("gpu_sm_activity_ratio", "gpu_power_draw_watts"), tuple(f"m{m}" for m in range(6))


def window_of(values_TMK: np.ndarray, seconds: float = 1.0) -> Window:
    return Window(seconds * np.arange(len(values_TMK)), NAMES, METRICS, values_TMK, np.full(values_TMK.shape[:2], True))


def steady() -> np.ndarray:
    return np.asarray(np.exp(np.random.default_rng(1).normal(0.0, 0.02, (120, len(NAMES), 2))) * [0.6, 500.0])


def test_who_stands_farthest_is_first_and_far_from_accused() -> None:
    values_TMK = steady()
    values_TMK[:, 4] *= [0.8, 0.9]  # from the first row on: nothing that has changed
    detector, found = DefaultDetector(), []
    for row in rows_of(window_of(values_TMK)):
        found += detector.score(row)
        detector.learn(row, frozenset())
    last = found[-1]
    assert last.machines[int(np.argmax(last.score_M))] == "m4"
    assert last.score_M.min() > 0.0 and last.score_M.max() < 0.1 * last.threshold and not last.evidence


def test_a_machine_without_data_and_a_metric_that_stands_have_no_place_in_the_order() -> None:
    values_TMK = steady()
    values_TMK[:, 2], values_TMK[:, :, 1] = np.nan, 500.0
    detector, found = DefaultDetector(), []
    for row in rows_of(window_of(values_TMK, 300.0)):
        found += detector.score(row)
    assert np.isfinite(found[0].score_M).all() and found[0].score_M[2] == 0.0
