"""The default detector through its rule and the judge, on generated telemetry: each fault kind is found, each nuisance is forgiven."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from minder.detectors.default import DefaultDetector
from minder.types import Observation, Verdict
from minder.verdicts.judge import Judge
from minder.verdicts.telemetry import TelemetryRule, rows_of
from minder.windows import align_columns

STALLS = (
    "ecc_error",
    "cuda_execution_error",
    "gpu_execution_error",
    "hdfs_error",
    "nic_dropout",
    "gpu_card_drop",
    "hang",
    "machine_unreachable",
)
SLOWS = ("pcie_downgrade", "nvlink_error", "optical_cable", "slow_gpu", "thermal")


def accusations(columns: Any) -> list[Verdict]:
    judge = Judge([TelemetryRule(DefaultDetector(columns.stages))])
    window = align_columns(columns, columns.interval_s)
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    return [verdict for verdict in found if verdict.kind != "recovered" and verdict.tier != "watch"]


@pytest.mark.parametrize("fault", STALLS + SLOWS)
def test_each_fault_kind_is_found(generator: ModuleType, fault: str) -> None:
    recipe = generator.Recipe(seed=3, fault=fault, machines=8, pipeline=2, interval_s=5.0, duration_s=1000, onset_s=500.0)
    columns = generator.generate(recipe)
    found = accusations(columns)
    assert {verdict.machines for verdict in found} == {(columns.culprit,)}
    assert 0.0 <= found[0].time_s - columns.onset_s <= 420.0
    assert found[0].evidence
    assert found[0].since_s <= found[0].time_s


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_accuses_nobody(generator: ModuleType, seed: int) -> None:
    recipe = generator.Recipe(seed=seed, machines=(4, 8, 24)[seed], pipeline=(1, 2, 4)[seed], interval_s=5.0, duration_s=1500)
    assert accusations(generator.generate(recipe)) == []


@pytest.mark.parametrize(
    "nuisance",
    ["wander", "drift", "warm_slot", "sidecar", "page_cache", "other_hardware", "stuck_sensor", "skewed_clock", "link_flap", "evaluation",
     "exporter_dies", "outage", "late_dark", "congestion", "restart"],
)  # fmt: skip
def test_each_nuisance_alone_accuses_nobody(generator: ModuleType, nuisance: str) -> None:
    recipe = generator.Recipe(seed=8, machines=8, pipeline=2, interval_s=10.0, duration_s=1200, nuisances=(nuisance,))
    assert accusations(generator.generate(recipe)) == []


def test_silence_alone_accuses_nobody_but_silence_with_a_stall_does(generator: ModuleType) -> None:
    trains_on = generator.Recipe(seed=2, machines=8, pipeline=1, interval_s=5.0, duration_s=800, nuisances=("exporter_dies",))
    assert accusations(generator.generate(trains_on)) == []
    gone = generator.Recipe(seed=2, fault="machine_unreachable", machines=8, pipeline=1, interval_s=5.0, duration_s=800, onset_s=400.0)
    columns = generator.generate(gone)
    found = accusations(columns)
    assert {(verdict.machines, verdict.cause) for verdict in found} == {((columns.culprit,), "absence")}


def test_a_checkpoint_right_before_the_fault_only_delays(generator: ModuleType) -> None:
    """Whatever the checkpoints of the seeds are, plain faults at 1 Hz are named within two minutes."""
    for seed in (1, 2):
        recipe = generator.Recipe(seed=seed, fault="hang", machines=8, pipeline=1, interval_s=1.0, duration_s=520, onset_s=330.0)
        columns = generator.generate(recipe)
        found = accusations(columns)
        assert {verdict.machines for verdict in found} == {(columns.culprit,)}
        assert found[0].time_s - columns.onset_s <= 120.0
