"""What a detector keeps does not grow with time: after three hours it is what it was after one, though machines and metrics came and went.

Held back: machines under other names take the places of those that leave, one every ten minutes; one machine's clock is behind; a metric
is away now and then; the job rests, and a machine is sick for a while.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from minder.diagnose.detectors.choose import choose_detector
from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.similarity.config import PUBLISHED_METRICS
from minder.diagnose.detectors.similarity.weights import Weights, shapes
from minder.model.telemetry import Window

STEP_S, HOUR_S, CHANGE_S, BLOCK = 15.0, 3600.0, 600.0, 20
MACHINES, SKEWED = 8, 3
METRICS = (*PUBLISHED_METRICS, "gpu_sm_activity_ratio", "gpu_temperature_celsius", "rdma_throughput_bytes_per_second")
LEVEL_K = np.array([1.0 if name.endswith("ratio") else 500.0 for name in METRICS]) * 0.6


def untrained(name: str) -> Weights:
    rng = np.random.default_rng(0)
    arrays = {part: rng.uniform(-0.5, 0.5, shape).astype(np.float32) for part, shape in shapes(len(METRICS), 1, 4, 8).items()}
    return Weights(tuple((metric,) for metric in METRICS), METRICS, dict.fromkeys(METRICS, (0.0, 600.0)), arrays)


def blocks(hours: int) -> Iterator[Window]:
    rng = np.random.default_rng(1)
    rows = int(hours * HOUR_S / STEP_S)
    time_T = STEP_S * np.arange(rows)
    job_T = np.where(time_T % 450.0 < 60.0, 0.1, 1.0)  # checkpoints
    activity_TM = np.repeat(job_T[:, None], MACHINES, axis=1)
    activity_TM[1:, SKEWED] = job_T[:-1]
    values_TMK = LEVEL_K * activity_TM[:, :, None] * (1.0 + 0.01 * rng.standard_normal((rows, MACHINES, len(METRICS))))
    values_TMK[(time_T % 2500.0) > 2300.0, 5] *= 0.5
    for first in range(0, rows, BLOCK):
        part, changes = slice(first, first + BLOCK), int(time_T[first] // CHANGE_S)
        names = [f"m{m:03d}" for m in range(MACHINES)]
        names[-1] = f"n{changes:03d}"  # each is there for ten minutes
        kept = slice(0, len(METRICS) - (changes % 3 == 1))
        present_TM = rng.random((BLOCK, MACHINES)) > 0.01
        values = np.where(present_TM[:, :, None], values_TMK[part, :, kept], np.nan)
        yield Window(time_T[part], tuple(names), METRICS[kept], values, present_TM)


def count_leaves(state: object) -> int:
    if isinstance(state, dict):
        return sum(count_leaves(part) for part in state.values())
    return sum(map(count_leaves, state)) if isinstance(state, list) else 1


def look(detector: Detector, window: Window) -> None:
    scores = detector.score(window)[-1]
    detector.learn(
        window, frozenset(name for name, value in zip(scores.machines, scores.score_M, strict=True) if value >= scores.threshold)
    )


@pytest.mark.parametrize("name", ["minder", *(pytest.param(name, marks=pytest.mark.release) for name in ("default", "mahalanobis"))])
def test_what_is_kept_after_three_hours_is_what_was_kept_after_one(name: str) -> None:
    detector = choose_detector(name, untrained)
    size: dict[float, tuple[int, int]] = {}
    for window in blocks(3):
        look(detector, window)
        ended_s = window.times_T[-1] + STEP_S
        if ended_s % HOUR_S == 0.0:
            size[ended_s / HOUR_S] = (count_leaves(json.loads(json.dumps(detector.state()))), len(pickle.dumps(detector)))
    assert set(size) == {1.0, 2.0, 3.0}
    assert name != "default" or detector.state()["stages"]["Clock"]["past"]  # the clock that is behind is seen: rows are kept for it
    assert size[3.0][0] == size[1.0][0] == size[2.0][0] > 100
    assert size[3.0][1] == pytest.approx(size[1.0][1], rel=0.01)  # all that it holds, not only what it would save
