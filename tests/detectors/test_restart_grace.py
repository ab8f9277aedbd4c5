"""Machines come back one by one: from a restart of the whole job, and from a checkpoint that one of them goes on writing while the others
spin in a barrier. Whoever is last, still at rest or still silent, is given time, and no more than that."""

from __future__ import annotations

import numpy as np
import pytest

from minder.model.evidence import Verdict
from minder.model.telemetry import Window
from tests.detectors.judged import judged

METRICS = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "nvlink_bandwidth_bytes_per_second")
AT_REST = np.array([0.2, 0.1, 0.05])
TCP, PCIE, CPU = "tcp_throughput_bytes_per_second", "pcie_bandwidth_bytes_per_second", "cpu_usage_ratio"
LEVELS = {"gpu_duty_cycle_ratio": 1.0, METRICS[0]: 600.0, METRICS[1]: 0.6, METRICS[2]: 2e11, TCP: 5e8, PCIE: 7e8, CPU: 0.2}
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


def accused(factors_TMK: np.ndarray, present_TM: np.ndarray, metrics: tuple[str, ...] = METRICS) -> list[Verdict]:
    values_TMK = factors_TMK * np.array([LEVELS[name] for name in metrics])
    values_TMK[~present_TM] = np.nan
    window = Window(INTERVAL_S * np.arange(ROWS), tuple(f"m{m}" for m in range(MACHINES)), metrics, values_TMK, present_TM)
    return [verdict for verdict in judged(window)[0] if verdict.kind != "recovered"]


def row_of(verdict: Verdict) -> float:
    return verdict.time_s / INTERVAL_S - STOPPED


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.release) for seed in range(2, 6))])
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


def test_who_never_goes_on_after_a_checkpoint_is_accused_once_its_minute_is_over() -> None:
    found = accused(*job([4, 4, 4, ROWS, 4]))
    assert found and {verdict.machines for verdict in found} == {("m3",)}
    assert 60.0 / INTERVAL_S <= row_of(found[0]) - 4 <= 120.0 / INTERVAL_S


def test_who_stood_first_and_stands_while_all_stand_is_accused_whatever_moves_for_a_moment() -> None:
    """A hang: its peers wait for it, and noise of one of them is no return."""
    factors_TMK, present_TM = job([0, 0, 0, 0, 0])
    factors_TMK[STOPPED:, 3] *= AT_REST * 0.3
    factors_TMK[STOPPED + 2 :, [0, 1, 2, 4]] *= AT_REST * 3.0
    factors_TMK[STOPPED + 12, 1] /= AT_REST * 3.0
    found = accused(factors_TMK, present_TM)
    assert found and {verdict.machines for verdict in found} == {("m3",)}
    assert row_of(found[0]) <= 25


SPINNING = ("gpu_duty_cycle_ratio", *METRICS)
IN_BARRIER = np.array([1.05, 0.45, 0.1, 0.02])  # the duty cycle stays high


def spinning(writes: int, rests: int = 3, duty: float = 0.02, odd: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """All rest for so many rows; m0 goes on for `writes` more, the others spin until it is done, and all work again. duty: share of their
    duty cycle that is left in the rest; odd: m0's power and SM activity fell to a third so many rows before."""
    factors_TMK = np.exp(np.random.default_rng(4).normal(0.0, 0.03, (ROWS, MACHINES, len(SPINNING))))
    factors_TMK[STOPPED - odd : STOPPED, 0] *= np.array([1.0, 0.35, 0.35, 0.35])
    factors_TMK[STOPPED : STOPPED + rests] *= np.array([duty, *AT_REST])
    factors_TMK[STOPPED + rests : STOPPED + rests + writes, 0] *= np.array([duty, *AT_REST])
    factors_TMK[STOPPED + rests : STOPPED + rests + writes, 1:] *= IN_BARRIER
    return factors_TMK * np.array([0.9, 1.0, 1.0, 1.0]), np.full((ROWS, MACHINES), True)


@pytest.mark.parametrize("duty", [0.02, 0.68])
@pytest.mark.parametrize("writes", [9, *(pytest.param(writes, marks=pytest.mark.release) for writes in (2, 5))])
def test_who_writes_its_checkpoint_on_while_the_others_spin_is_not_accused(writes: int, duty: float) -> None:
    """For 45 s at most, also where scrapes see only a part of the rest."""
    assert accused(*spinning(writes, duty=duty), SPINNING) == []


@pytest.mark.parametrize("writes", [9, pytest.param(5, marks=pytest.mark.release)])
def test_who_writes_on_is_not_accused_where_those_who_spin_look_almost_like_those_who_rest(writes: int) -> None:
    """The site exports neither duty cycle nor graphics activity, and power and SM activity fall in a barrier, too."""
    factors_TMK, present_TM = spinning(writes)
    assert accused(factors_TMK[:, :, 1:], present_TM) == []


def test_who_loads_on_after_a_long_rest_is_not_accused() -> None:
    assert accused(*spinning(24, rests=12), SPINNING) == []


@pytest.mark.parametrize(("rests", "given_s"), [(3, 60.0), (12, 150.0)])
def test_who_rests_on_for_good_is_accused_once_its_time_is_over(rests: int, given_s: float) -> None:
    found = accused(*spinning(ROWS, rests), SPINNING)
    assert found and {verdict.machines for verdict in found} == {("m0",)}
    assert given_s / INTERVAL_S <= row_of(found[0]) - rests <= (given_s + 60.0) / INTERVAL_S


def moving(writes: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    """As `spinning`; while m0 writes the others' hosts move a thousandth of what they did, and m0's this share."""
    factors_TMK, present_TM = spinning(writes)
    moved_TM = np.exp(np.random.default_rng(5).normal(0.0, 0.05, (ROWS, MACHINES)))
    moved_TM[STOPPED : STOPPED + 3 + writes] *= np.where(np.arange(MACHINES) == 0, share, 1e-3)
    return np.concatenate([factors_TMK, moved_TM[:, :, None]], axis=2), present_TM


@pytest.mark.parametrize("share", [1.0, 40.0], ids=["as usual", "far more"])
def test_who_writes_on_for_minutes_is_not_accused_while_its_host_moves_data_as_no_other_does(share: float) -> None:
    assert accused(*moving(50, share), (*SPINNING, TCP)) == []


@pytest.mark.parametrize(("share", "given_s"), [(1.0, 300.0), (1e-3, 60.0)], ids=["moves", "stands"])
def test_who_moves_data_for_good_is_accused_after_five_minutes_and_who_stands_after_one(share: float, given_s: float) -> None:
    found = accused(*moving(ROWS, share), (*SPINNING, TCP))
    assert found and {verdict.machines for verdict in found} == {("m0",)}
    assert given_s / INTERVAL_S <= row_of(found[0]) - 3 <= (given_s + 60.0) / INTERVAL_S


def alone(writes: int, own: float, others: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """m0 writes while the others go straight into the barrier. own, others: what their hosts move meanwhile, in shares of what is usual."""
    factors_TMK, present_TM = spinning(writes, rests=0)
    moved_TM = np.exp(np.random.default_rng(5).normal(0.0, 0.05, (ROWS, MACHINES)))
    moved_TM[STOPPED : STOPPED + writes] *= np.where(np.arange(MACHINES) == 0, own, others)
    return np.concatenate([factors_TMK, moved_TM[:, :, None]], axis=2), present_TM


@pytest.mark.parametrize(("own", "others"), [(20.0, 4.0), (8.0, 0.01)], ids=["all move more", "alone"])
def test_who_writes_for_all_is_not_accused_though_no_rest_of_all_came_before(own: float, others: float) -> None:
    assert accused(*alone(40, own, others), (*SPINNING, TCP)) == []


def test_who_moves_between_gpus_and_host_what_it_does_in_work_is_given_a_minute() -> None:
    assert accused(*alone(10, 1.0, 0.005), (*SPINNING, PCIE)) == []
    found = accused(*alone(ROWS, 1.0, 0.005), (*SPINNING, PCIE))
    assert {(verdict.machines, verdict.tier) for verdict in found} == {(("m0",), "page")}
    assert 60.0 / INTERVAL_S <= row_of(found[0]) <= 120.0 / INTERVAL_S


def often(written_TMK: np.ndarray, times: int) -> np.ndarray:
    """The stop of six rows, again and again, every minute."""
    found_TMK, stop = written_TMK.copy(), slice(STOPPED, STOPPED + 12)
    for row in range(STOPPED, STOPPED + 12 * times, 12):
        found_TMK[row : row + 12] = written_TMK[stop]
    return found_TMK


def test_who_rests_while_its_processor_is_busier_than_in_work_is_paged_once_and_never_evicted() -> None:
    """It may write, compute, or be caught in its own program; where it works again by itself, that is the job's habit."""
    factors_TMK, present_TM = alone(6, 1.5)
    assert [verdict.tier for verdict in accused(factors_TMK, present_TM, (*SPINNING, CPU))] == ["page"]
    assert [verdict.tier for verdict in accused(often(factors_TMK, 8), present_TM, (*SPINNING, CPU))] == ["page"]
    assert {verdict.tier for verdict in accused(*alone(ROWS, 1.5), (*SPINNING, CPU))} == {"page"}


def test_a_sample_that_is_missing_ends_no_rest() -> None:
    """Who hangs while its processor is busy would be given twice as long, again and again."""
    factors_TMK, present_TM = alone(ROWS, 1.5)
    present_TM[STOPPED + 8 :: 9, 0] = False
    found = accused(factors_TMK, present_TM, (*SPINNING, CPU))
    assert found and row_of(found[0]) <= 60.0 / INTERVAL_S


def test_who_rests_while_its_processor_does_so_too_is_evicted() -> None:
    assert "evict" in {verdict.tier for verdict in accused(*alone(ROWS, 0.2, 0.9), (*SPINNING, CPU))}


def test_who_writes_often_is_given_time_for_each_checkpoint() -> None:
    """Every minute, for eight minutes."""
    factors_TMK, present_TM = alone(6, 20.0)
    assert accused(often(factors_TMK, 8), present_TM, (*SPINNING, TCP)) == []


@pytest.mark.parametrize(("own", "most_s"), [(0.1, 60.0), (1.0, 60.0), (20.0, 360.0)], ids=["stands", "as in work", "writes for good"])
def test_who_stands_while_its_host_moves_no_more_than_in_work_hangs(own: float, most_s: float) -> None:
    found = accused(*alone(ROWS, own), (*SPINNING, TCP))
    assert found and {verdict.machines for verdict in found} == {("m0",)}
    assert row_of(found[0]) <= most_s / INTERVAL_S


def test_who_was_odd_before_the_rest_is_given_no_time() -> None:
    found = accused(*spinning(ROWS, odd=4), SPINNING)
    assert found and {verdict.machines for verdict in found} == {("m0",)}
    assert row_of(found[0]) - 3 < 60.0 / INTERVAL_S


def test_a_rest_that_some_rows_do_not_tell_of_is_remembered() -> None:
    """Exporters of their own: every other row has no duty cycle."""
    factors_TMK, present_TM = spinning(9)
    factors_TMK[1::2, :, 0] = np.nan
    assert accused(factors_TMK, present_TM, SPINNING) == []
