"""A dozen machines scraped every 5 s, in a job that comes to stand: what it looks like before, and what is said of it."""

from __future__ import annotations

import numpy as np

from minder.model.evidence import Verdict
from minder.model.telemetry import Window
from tests.detectors.judged import judged

METRICS = ("gpu_sm_activity_ratio", "nvlink_bandwidth_bytes_per_second", "memory_usage_ratio")
MACHINES, INTERVAL_S = 12, 5.0
_USUAL = np.array([0.6, 2e11, 0.5, 2e10])


def healthy(rows: int) -> np.ndarray:
    """(T, M, K): factors around 1."""
    return np.exp(np.random.default_rng(5).normal(0.0, [0.02, 0.03, 0.002], (rows, MACHINES, len(METRICS))))


def accusations(factors_TMK: np.ndarray, present_TM: np.ndarray, metrics: tuple[str, ...] = METRICS) -> list[Verdict]:
    """Times in seconds since the first row."""
    values_TMK = factors_TMK * _USUAL[: len(metrics)]
    values_TMK[~present_TM] = np.nan
    names = tuple(f"m{m:02d}" for m in range(MACHINES))
    window = Window(INTERVAL_S * np.arange(len(values_TMK)), names, metrics, values_TMK, present_TM)
    return [verdict for verdict in judged(window)[0] if verdict.kind != "recovered"]
