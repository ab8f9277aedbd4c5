"""What is new in a row: metrics of a slow exporter only stand between its scrapes, whatever another one of the machine tells."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.detectors.presence import Presence
from minder.diagnose.detectors.traits import TraitTable
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.evidence import Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window
from tests.detectors.one_stage import one_stage

METRICS = ("cpu_usage_ratio", "gpu_sm_activity_ratio")
NAMES = ("cpu_usage_ratio", "gpu_duty_cycle_ratio", "gpu_sm_activity_ratio", "gpu_power_draw_watts", "rdma_throughput_bytes_per_second")
LEVELS = np.array([0.4, 0.95, 0.6, 500.0, 2e10])


def test_a_metric_with_an_exporter_of_its_own_speaks_when_that_is_scraped_and_for_as_long() -> None:
    presence, traits = one_stage(Presence, ("a", "b"), METRICS), TraitTable(METRICS)
    rng = np.random.default_rng(0)
    both = np.array([0, 1])
    gpu = np.array([[False, False], [True, True]])
    since = []
    for t in range(200):
        raw_KM = rng.uniform(0.3, 0.5, (2, 2)).astype(np.float32)
        if t % 10:
            raw_KM[1] = presence.state.last_KM[1]
        status = presence.observe_row(traits, float(t), raw_KM, np.array([True, True]))
        since.append(presence.seconds_since_update(status, both, gpu))
    assert [float(row[0]) for row in since[180:200]] == [10.0, *[0.0] * 9] * 2
    for others in (~gpu, np.ones_like(gpu), np.zeros_like(gpu)):  # the host's come with every row; of silence nothing is said
        assert np.isnan(presence.seconds_since_update(status, both, others)).all()


def accused(values_TMK: np.ndarray) -> list[Verdict]:
    machines = tuple(f"m{m}" for m in range(values_TMK.shape[1]))
    times_T = 1000.0 + np.arange(len(values_TMK))
    window = Window(times_T, machines, NAMES, values_TMK, np.ones(values_TMK.shape[:2], dtype=bool))
    judge = Judge([TelemetryRule(DefaultDetector())])
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    return [verdict for verdict in found if verdict.kind == "machine" and verdict.tier != "watch"]


def held(values_TMK: np.ndarray, phases: list[int], period: int) -> np.ndarray:
    """Each machine's GPU metrics as an exporter of a slower period shows them: a sample stands until the next."""
    rows = np.arange(len(values_TMK))
    shown_TMK = values_TMK.copy()
    for m, phase in enumerate(phases):
        taken = np.maximum(rows - (rows - phase) % period, 0)
        shown_TMK[:, m, 1:4] = values_TMK[taken, m, 1:4]
    return shown_TMK


def job(seed: int) -> np.ndarray:
    noise_TMK = np.random.default_rng(seed).normal(1.0, 0.01, (900, 8, len(LEVELS))).clip(0.9, 1.04)
    return np.asarray(LEVELS * noise_TMK)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.release) for seed in (1, 2))])
def test_whose_gpus_are_scraped_in_a_hiccup_of_all_is_not_accused_though_they_show_it_for_half_a_minute(seed: int) -> None:
    values_TMK = job(seed)
    values_TMK[602:606, :, 1:] *= np.array([0.2, 0.1, 0.4, 0.1])
    assert accused(held(values_TMK, [8, 6, 7, 9, 20, 27, 18, 3], 30)) == []


@pytest.mark.lab
def test_a_fault_is_found_also_if_gpus_are_scraped_every_half_minute() -> None:
    values_TMK = job(7)
    values_TMK[605:, 2, 1:4] *= np.array([0.2, 0.1, 0.3])
    values_TMK[610:, :, 4] *= 0.05
    values_TMK[610:, [0, 1, 3, 4, 5, 6, 7], 2] *= 0.5
    found = accused(held(values_TMK, [8, 6, 7, 9, 10, 7, 8, 3], 30))
    assert {verdict.machines for verdict in found} == {("m2",)}
    assert found[0].time_s - 1605.0 < 120.0


@pytest.mark.parametrize(("stands", "usable"), [(0.01, True), (0.4, False)])
def test_a_gauge_that_stands_to_the_digit_is_a_reading_where_gpus_rest(stands: float, usable: bool) -> None:
    names = ("a", "b", "c", "d")
    metrics, rng = ("gpu_duty_cycle_ratio", "gpu_power_draw_watts"), np.random.default_rng(0)
    presence, traits = one_stage(Presence, names, metrics), TraitTable(metrics)
    for t in range(120):
        raw_KM = np.stack([rng.uniform(0.9, 0.98, 4), rng.uniform(400.0, 500.0, 4)]).astype(np.float32)
        raw_KM[0, 1] = stands if t > 60 else raw_KM[0, 1]
        status = presence.observe_row(traits, 3.0 * t, raw_KM, np.ones(4, dtype=bool))
    assert (status.usable_KM is None or bool(status.usable_KM[0, 1])) == usable
