"""Which deviations count: of a small stage's and the whole job's the smaller, but for congestion; of work only too little."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.evidence import Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window

METRICS = ("pfc_tx_packets_per_second", "gpu_sm_activity_ratio")
MACHINES, STAGES, ROWS, FAULT = 12, 6, 900, 400
NAMES = tuple(f"m{m:02d}" for m in range(MACHINES))


def accusations(window: Window, stages: dict[str, int]) -> list[Verdict]:
    judge = Judge([TelemetryRule(DefaultDetector(stages))])
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    return [verdict for verdict in found if verdict.kind != "recovered"]


def bursts(seed: int) -> np.ndarray:
    """(T, M): congestion as it comes, in bursts of some seconds; rows of 1 s."""
    rng = np.random.default_rng(seed)
    found_TM = np.empty((ROWS, MACHINES))
    level_M = np.zeros(MACHINES)
    for row_M in found_TM:
        level_M = 0.7 * level_M + rng.normal(0.0, 0.5, MACHINES)
        row_M[:] = level_M
    return 50.0 * np.exp(found_TM)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.release) for seed in (1, 2))])
def test_congestion_of_one_machine_is_heard_over_a_noisy_neighbour_in_a_small_stage(seed: int) -> None:
    values_TMK = np.empty((ROWS, MACHINES, 2))
    values_TMK[:, :, 0] = bursts(seed)
    values_TMK[FAULT:, 4, 0] *= 12.0
    values_TMK[:, :, 1] = 0.6 * np.exp(np.random.default_rng(seed + 50).normal(0.0, 0.02, (ROWS, MACHINES)))
    window = Window(np.arange(float(ROWS)), NAMES, METRICS, values_TMK, np.full((ROWS, MACHINES), True))
    accused = accusations(window, {name: m * STAGES // MACHINES for m, name in enumerate(NAMES)})
    assert accused and {verdict.machines for verdict in accused} == {("m04",)}
    assert 0.0 < accused[0].time_s - FAULT <= 240.0


@pytest.mark.parametrize(("times", "accused"), [(1.6, set()), (0.6, {("m04",)})])
def test_who_works_more_than_its_peers_while_nothing_suffers_is_not_ill_and_who_works_less_is(
    times: float, accused: set[tuple[str, ...]]
) -> None:
    """Uneven experts and sequences: for three minutes one machine has more of everything to do, its traffic too."""
    metrics = ("gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio", "rdma_throughput_bytes_per_second")
    values_TMK = np.exp(np.random.default_rng(8).normal(0.0, 0.04, (240, MACHINES, 4)))
    values_TMK[120:156, 4] *= times
    values_TMK *= np.array([0.6, 0.4, 0.4, 1e11])
    found = accusations(Window(5.0 * np.arange(240.0), NAMES, metrics, values_TMK, np.full((240, MACHINES), True)), {})
    assert {verdict.machines for verdict in found} == accused


@pytest.mark.parametrize(("seconds", "accused"), [(120, set()), (600, {("m04",)})])
def test_who_works_a_third_less_while_nothing_suffers_is_given_minutes(seconds: int, accused: set[tuple[str, ...]]) -> None:
    """Shorter sequences are over after a minute or two; what stays is named."""
    metrics = ("gpu_sm_activity_ratio", "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio", "rdma_throughput_bytes_per_second")
    values_TMK = np.exp(np.random.default_rng(9).normal(0.0, 0.04, (300, MACHINES, 4)))
    values_TMK[120 : 120 + seconds // 5, 4] *= 0.64
    values_TMK *= np.array([0.6, 0.4, 0.4, 1e11])
    found = accusations(Window(5.0 * np.arange(300.0), NAMES, metrics, values_TMK, np.full((300, MACHINES), True)), {})
    assert {verdict.machines for verdict in found} == accused


@pytest.mark.parametrize("slow", [7, None])
def test_a_slower_clock_among_thousands_is_told_though_another_machine_jitters_in_every_row(slow: int | None) -> None:
    """Scrapes of 15 s, and in each of them some machine is far off, for that row alone."""
    metrics = ("gpu_clock_hertz", "gpu_sm_activity_ratio", "gpu_power_draw_watts", "gpu_temperature_celsius")
    rng, rows, machines = np.random.default_rng(10), 120, 1_000
    values_TMK = np.exp(rng.normal(0.0, 0.02, (rows, machines, 4)))
    for row in range(rows):
        values_TMK[row, rng.integers(10, machines), :3] *= 0.4
    if slow is not None:
        values_TMK[60:, slow, 0] *= 0.8
    values_TMK *= np.array([1.5e9, 0.6, 600.0, 60.0])
    names = tuple(f"m{m:04d}" for m in range(machines))
    found = accusations(Window(15.0 * np.arange(float(rows)), names, metrics, values_TMK, np.full((rows, machines), True)), {})
    assert {verdict.machines for verdict in found} == (set() if slow is None else {(names[slow],)})
    assert all(verdict.time_s - 900.0 <= 420.0 for verdict in found)
