"""After a restart of the whole job machines come back one by one: whoever is last, still at rest or still silent, is given time."""

from __future__ import annotations

import numpy as np
import pytest

from minder.detectors.default import DefaultDetector
from minder.types import Observation, Verdict, Window
from minder.verdicts.judge import Judge
from minder.verdicts.telemetry import TelemetryRule
from minder.windows import rows_of

METRICS = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "nvlink_bandwidth_bytes_per_second")
AT_REST = np.array([0.2, 0.1, 0.05])
MACHINES, ROWS, INTERVAL_S, STOPPED = 5, 320, 5.0, 150  # the job stops in that row


def job(backs: list[int], silent: dict[int, tuple[int, int]] | None = None) -> tuple[np.ndarray, np.ndarray]:
    """((T, M, K), (T, M)): a job whose machine m works again backs[m] rows after all stopped; silent: from which row on, for how many."""
    factors_TMK = np.exp(np.random.default_rng(3).normal(0.0, 0.03, (ROWS, MACHINES, len(METRICS))))
    present_TM = np.full((ROWS, MACHINES), True)
    for m, back in enumerate(backs):
        factors_TMK[STOPPED : STOPPED + back, m] *= AT_REST
    for m, (first, rows) in (silent or {}).items():
        present_TM[STOPPED + first : STOPPED + first + rows, m] = False
    return factors_TMK, present_TM


def accused(factors_TMK: np.ndarray, present_TM: np.ndarray) -> list[Verdict]:
    """What is said, times in rows after the stop."""
    values_TMK = factors_TMK * np.array([600.0, 0.6, 2e11])
    values_TMK[~present_TM] = np.nan
    window = Window(INTERVAL_S * np.arange(ROWS), tuple(f"m{m}" for m in range(MACHINES)), METRICS, values_TMK, present_TM)
    judge = Judge([TelemetryRule(DefaultDetector())])
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    return [verdict for verdict in found if verdict.kind != "recovered"]


def row_of(verdict: Verdict) -> float:
    return verdict.time_s / INTERVAL_S - STOPPED


@pytest.mark.parametrize("seed", range(6))
def test_who_comes_back_last_from_a_restart_is_not_accused(seed: int) -> None:
    """Ten seconds to two minutes after the others, some of them silent in between, as where exporters restart, too."""
    rng = np.random.default_rng(seed)
    backs = rng.integers(10, 33, MACHINES).tolist()
    silent = {m: (2, int(back) // 2 + 4) for m, back in enumerate(backs) if rng.random() < 0.5}
    assert accused(*job(backs, silent)) == []


def test_who_never_comes_back_is_accused_once_its_time_is_over() -> None:
    found = accused(*job([12, 14, 13, ROWS, 12]))
    assert found and {verdict.machines for verdict in found} == {("m3",)}
    assert 150.0 / INTERVAL_S <= row_of(found[0]) - 12 <= 220.0 / INTERVAL_S


def test_after_a_short_rest_all_go_on_together_and_who_does_not_is_accused_at_once() -> None:
    found = accused(*job([4, 4, 4, ROWS, 4]))
    assert found and {verdict.machines for verdict in found} == {("m3",)}
    assert row_of(found[0]) <= 20


def test_who_stood_first_and_stands_while_all_stand_is_accused_whatever_moves_for_a_moment() -> None:
    """A hang: its peers wait for it, and noise of one of them is no return."""
    factors_TMK, present_TM = job([0, 0, 0, 0, 0])
    factors_TMK[STOPPED:, 3] *= AT_REST * 0.3
    factors_TMK[STOPPED + 2 :, [0, 1, 2, 4]] *= AT_REST * 3.0
    factors_TMK[STOPPED + 12, 1] /= AT_REST * 3.0
    found = accused(factors_TMK, present_TM)
    assert found and {verdict.machines for verdict in found} == {("m3",)}
    assert row_of(found[0]) <= 25
