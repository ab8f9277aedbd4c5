"""What passes on one machine while the training is disturbed for another reason: a jam of all, an evaluation, a little more work."""

from __future__ import annotations

import numpy as np
import pytest

from minder.model.telemetry import Window
from tests.detectors.judged import judged

METRICS = (
    "gpu_power_draw_watts",
    "gpu_sm_activity_ratio",
    "nvlink_bandwidth_bytes_per_second",
    "ecn_packets_per_second",
    "gpu_temperature_celsius",
)
USUAL = np.array([500.0, 0.6, 2e11, 300.0, 60.0])
MACHINES, ROWS, INTERVAL_S, BEGAN = 24, 90, 15.0, 60


def telemetry(all_slow: list[float]) -> np.ndarray:
    """(T, M, K): healthy machines; from row BEGAN on, for twenty rows, all of them do and show so much less or more."""
    noise_K = [0.01, 0.01, 0.02, 0.1, 0.002]
    values_TMK = np.exp(np.random.default_rng(3).normal(0.0, noise_K, (ROWS, MACHINES, len(METRICS)))) * USUAL
    values_TMK[BEGAN : BEGAN + 20] *= np.array(all_slow)
    return values_TMK


def accused(values_TMK: np.ndarray) -> set[tuple[str, ...]]:
    names = tuple(f"m{m:02d}" for m in range(MACHINES))
    window = Window(1.7e9 + INTERVAL_S * np.arange(ROWS), names, METRICS, values_TMK, np.full((ROWS, MACHINES), True))
    return {verdict.machines for verdict in judged(window)[0] if verdict.kind != "recovered"}


@pytest.mark.parametrize(("share", "rows", "named"), [(0.75, 4, set()), (0.4, 12, {("m05",)})])
def test_in_a_jam_of_all_what_all_have_lost_is_not_one_machines_change(share: float, rows: int, named: set[tuple[str, ...]]) -> None:
    """Uneven sequences give one machine a quarter less to do for a minute while the network slows all by as much; one that comes to do
    less than half of what the others do is ill, jam or not."""
    values_TMK = telemetry([0.8, 0.77, 0.75, 5.0, 1.0])
    values_TMK[BEGAN + 6 : BEGAN + 6 + rows, 5, :3] *= np.array([share**0.5, share, share])
    assert accused(values_TMK) == named


@pytest.mark.parametrize(("rows", "named"), [(2, set()), (14, {("m05",)})])
def test_a_gpu_that_is_still_warm_does_not_show_that_its_power_is_still_off(rows: int, named: set[tuple[str, ...]]) -> None:
    """While all suffer, one machine's power doubles for half a minute and is back; its degrees take minutes."""
    values_TMK = telemetry([0.75, 0.6, 0.6, 1.0, 1.0])
    values_TMK[BEGAN + 4 : BEGAN + 4 + rows, 5, 0] *= 2.2
    heat_T = np.zeros(ROWS)
    heat_T[BEGAN + 4 : BEGAN + 4 + rows] = 1.0
    values_TMK[:, 5, 4] += 40.0 * np.convolve(heat_T, 0.3 * 0.7 ** np.arange(20))[:ROWS]
    assert accused(values_TMK) == named


@pytest.mark.parametrize("all_do", [1.0, 1.2])
def test_who_works_more_while_nobody_works_less_is_not_ill(all_do: float) -> None:
    """Uneven sequences give one machine a third more to do for two minutes, whether or not all have come to do a fifth more."""
    values_TMK = telemetry([1.0 + 0.6 * (all_do - 1.0), all_do, all_do, 1.0, 1.0])
    values_TMK[BEGAN + 4 : BEGAN + 12, 5, :3] *= np.array([1.15, 1.35, 1.35])
    assert accused(values_TMK) == set()


@pytest.mark.parametrize("all_do", [1.0, 1.2])
@pytest.mark.parametrize(("share", "named"), [(0.75, set()), (0.4, {("m05",)})])
def test_a_training_that_does_more_than_usual_suffers_from_nobody(all_do: float, share: float, named: set[tuple[str, ...]]) -> None:
    """All do a fifth more, as at the end of a long congestion; for two and a half minutes one machine has a quarter less to do. One that
    comes to do less than half is ill whatever all do."""
    values_TMK = telemetry([1.0 + 0.6 * (all_do - 1.0), all_do, all_do, 1.0, 1.0])
    values_TMK[BEGAN + 4 : BEGAN + 14, 5, :3] *= np.array([share**0.5, share, share])
    assert accused(values_TMK) == named
