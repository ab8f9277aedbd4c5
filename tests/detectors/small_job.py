"""A small job's telemetry made by hand, and what the default detector says of it. T rows, M machines, K metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minder.model.evidence import Scores, Verdict
from minder.model.telemetry import Window
from tests.detectors.judged import judged

USUAL = {
    "gpu_sm_activity_ratio": (0.6, 0.03),
    "gpu_power_draw_watts": (500.0, 0.015),
    "nvlink_bandwidth_bytes_per_second": (2e11, 0.04),
    "rdma_throughput_bytes_per_second": (2e10, 0.05),
    "gpu_clock_hertz": (1.7e9, 0.003),
    "ecn_packets_per_second": (300.0, 0.15),
}
METRICS = tuple(USUAL)
WORKS = [METRICS.index(name) for name in METRICS[:4]]
AT_REST = np.array([0.05, 0.2, 0.01, 0.01])  # of what works
INTERVAL_S = 5.0


def healthy(rows: int, machines: int = 8, seed: int = 3) -> np.ndarray:
    """(T, M, K): a job at work in which nothing happens."""
    rng = np.random.default_rng(seed)
    sizes_K = [noise for _, noise in USUAL.values()]
    values_TMK = np.exp(rng.normal(0.0, sizes_K, (rows, machines, len(METRICS)))) * [usual for usual, _ in USUAL.values()]
    return np.asarray(values_TMK)


def with_hosts(rows: int, hosts: Mapping[str, tuple[float, float]]) -> np.ndarray:
    """(T, M, K): the same, and metrics of its hosts after it: usual values, and how far machines differ from row to row."""
    rng = np.random.default_rng(7)
    host_KTM = [usual + rng.normal(0.0, noise, (rows, 8)) for usual, noise in hosts.values()]
    return np.concatenate([healthy(rows), np.clip(np.stack(host_KTM, axis=2), 0.0, 1.0)], axis=2)


def at(name: str) -> int:
    return METRICS.index(name)


def watch(
    values_TMK: np.ndarray, stages: Mapping[str, object] | None = None, metrics: Sequence[str] = METRICS
) -> tuple[list[Verdict], list[Scores]]:
    """(verdicts that accuse, each row's scores)."""
    rows, machines, _ = values_TMK.shape
    names = tuple(f"m{m:02d}" for m in range(machines))
    window = Window(1.7e9 + INTERVAL_S * np.arange(rows), names, tuple(metrics), values_TMK, ~np.isnan(values_TMK).all(axis=2))
    found, scores = judged(window, stages)
    return [verdict for verdict in found if verdict.kind != "recovered" and verdict.tier != "watch"], scores


def accused(values_TMK: np.ndarray, stages: Mapping[str, object] | None = None) -> list[tuple[tuple[str, ...], str, float]]:
    """(machines, kind, seconds after the first row) of each verdict."""
    return [(verdict.machines, verdict.kind, verdict.time_s - 1.7e9) for verdict in watch(values_TMK, stages)[0]]
