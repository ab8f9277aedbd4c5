"""Who differs while the training stands: iterations that are long against the scrapes hide nobody once they have ended."""

from __future__ import annotations

import numpy as np

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.standstill import Standstill
from minder.diagnose.detectors.traits import TraitTable
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import rows_of
from minder.model.observation import Observation
from minder.model.telemetry import Window
from tests.detectors.one_stage import one_stage

METRICS = ("gpu_duty_cycle_ratio", "gpu_temperature_celsius")


def standstill_of(less: list[float], standing: list[float]) -> Standstill:
    """Machines of which the first metric is so far from their peers, and stands there usually."""
    made = one_stage(Standstill, [f"m{m}" for m in range(len(less))], METRICS)
    made.baseline.all_quick.smooth_KM = np.array([less, [9.0] + [0.0] * (len(less) - 1)])
    made.baseline.baseline_KM = np.array([standing, [0.0] * len(less)])
    return made


def standing(sustained: float = 1.0, stalled: bool = True) -> Phase:
    return Phase(False, False, 0.0, False, 1.0, 0.0, np.array([-0.8, 0.0]), stalled=stalled, sustained=sustained)


def test_who_differs_with_and_without_its_offset_stands_out_once_the_training_stands() -> None:
    traits = TraitTable(METRICS)
    stage = standstill_of([-1.2, 0.05, -0.02, 0.0, 0.03, 0.02], [-0.3, 0.1, 0.0, 0.0, -0.1, 0.05])
    z_KM = stage.standstill_z(traits, standing())
    assert z_KM is not None
    assert z_KM[0, 0] < -5.0
    assert (z_KM[0, 1:] == 0.0).all()
    assert (z_KM[1] == 0.0).all()  # a warmer slot is no plain change
    half_KM = stage.standstill_z(traits, standing(sustained=0.5))
    assert half_KM is not None
    assert np.isclose(half_KM[0, 0], 0.5 * z_KM[0, 0])


def test_neither_other_hardware_nor_an_offset_learned_wrong_stands_out() -> None:
    traits = TraitTable(METRICS)
    other_hardware = standstill_of([0.02, 0.05, -0.02, 0.0, 0.03, 0.02], [-1.2, 0.1, 0.0, 0.0, -0.1, 0.05])
    learned_wrong = standstill_of([-1.2, 0.05, -0.02, 0.0, 0.03, 0.02], [1.2, 0.1, 0.0, 0.0, -0.1, 0.05])
    for stage in (other_hardware, learned_wrong):
        z_KM = stage.standstill_z(traits, standing())
        assert z_KM is not None
        assert (z_KM == 0.0).all()


def test_nothing_is_said_while_the_training_runs_or_three_machines_are_all_there_are() -> None:
    traits = TraitTable(METRICS)
    stage = standstill_of([-1.2, 0.0, 0.0, 0.0], [0.0] * 4)
    assert stage.standstill_z(traits, standing(stalled=False)) is None
    assert stage.standstill_z(traits, standing(sustained=0.0)) is None
    assert standstill_of([-1.2, 0.0, 0.0], [0.0] * 3).standstill_z(traits, standing()) is None
    missing_KM = standstill_of([-1.2, 0.0, 0.0, np.nan], [0.0] * 4).standstill_z(traits, standing())
    assert missing_KM is not None
    assert (missing_KM == 0.0).all()


def long_steps(stops: int, culprit: int | None, rows: int = 80) -> Window:
    """Machines whose steps are long against scrapes of 15 s, so that each sample shows some other part of one; from row `stops`
    on all wait for each other. The culprit hardly spins. The last machine is other hardware, at half of everybody's."""
    rng = np.random.default_rng(5)
    values_TMK = rng.choice([0.2, 0.35, 0.6, 0.95], size=(rows, 24, 1)) * np.exp(rng.normal(0, 0.02, (rows, 24, 2)))
    values_TMK[:, :, 1] *= 700.0
    values_TMK[stops:, :, 0] = 0.97 * np.exp(rng.normal(0, 0.01, (rows - stops, 24)))
    values_TMK[stops:, :, 1] = 100.0 * np.exp(rng.normal(0, 0.02, (rows - stops, 24)))
    if culprit is not None:
        values_TMK[stops:, culprit, 0] *= 0.3
    values_TMK[:, 7] *= 0.5
    names = tuple(f"m{m}" for m in range(24))
    metrics = ("gpu_duty_cycle_ratio", "gpu_power_draw_watts")
    return Window(1.7e9 + 15.0 * np.arange(rows), names, metrics, values_TMK, np.full((rows, 24), True))


def named(window: Window) -> list[tuple[tuple[str, ...], float]]:
    judge = Judge([TelemetryRule(DefaultDetector())])
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    return [(verdict.machines, verdict.time_s - 1.7e9) for verdict in found if verdict.tier in ("page", "evict")]


def test_a_culprit_is_named_though_long_steps_have_made_every_difference_usual() -> None:
    found = named(long_steps(stops=50, culprit=2))
    assert {machines for machines, _ in found} == {("m2",)}
    assert 750.0 <= found[0][1] <= 750.0 + 420.0


def test_a_standstill_in_which_nobody_differs_accuses_nobody() -> None:
    assert named(long_steps(stops=50, culprit=None)) == []
