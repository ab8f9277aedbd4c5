"""A sign of trouble that is over in seconds, and comes back at the same machine."""

from __future__ import annotations

import numpy as np
import pytest
from small_job import AT_REST, METRICS, WORKS, healthy, watch

from minder.model.evidence import Verdict

ROWS = 160
DUTY = len(METRICS)
FREEZES = (60, 80, 100)  # rows of 5 s


def spinning(rows: int = ROWS) -> np.ndarray:
    """A job whose GPUs export their duty cycle, too."""
    duty_TM1 = np.random.default_rng(5).uniform(0.97, 1.0, (rows, 8, 1))
    return np.concatenate([healthy(rows), duty_TM1], axis=2)


def freeze(values_TMK: np.ndarray, row: int, machine: int, rows: int = 2) -> None:
    """One machine rests; the others spin, and wait for it."""
    values_TMK[row : row + rows, :, WORKS] *= np.array([0.2, 0.6, 0.05, 0.05])
    values_TMK[row : row + rows, machine, WORKS] = values_TMK[row - 1, machine, WORKS] * AT_REST
    values_TMK[row : row + rows, machine, DUTY] = 0.0


def checkpoint(values_TMK: np.ndarray, row: int, machines: list[int], rows: int = 4) -> None:
    for m in machines:
        values_TMK[row : row + rows, m, WORKS] *= AT_REST
        values_TMK[row : row + rows, m, DUTY] = 0.0


def said(values_TMK: np.ndarray, metrics: tuple[str, ...] = (*METRICS, "gpu_duty_cycle_ratio")) -> list[Verdict]:
    return watch(values_TMK, metrics=metrics)[0]


def test_a_machine_that_freezes_again_and_again_is_paged() -> None:
    values_TMK = spinning()
    for row in FREEZES:
        freeze(values_TMK, row, 5)
    found = said(values_TMK)
    assert [(verdict.machines, verdict.tier) for verdict in found] == [(("m05",), "page")]
    assert "again and again" in found[0].evidence[0].message


@pytest.mark.parametrize("machines", [(5, 5), (5, 2, 5, 2, 5, 2), (1, 2, 3, 4, 5)], ids=["twice", "two in turn", "each once"])
def test_freezes_that_are_chance_or_of_all_name_no_machine(machines: tuple[int, ...]) -> None:
    values_TMK = spinning()
    for row, machine in zip(range(60, 160, 16), machines, strict=False):
        freeze(values_TMK, row, machine)
    assert said(values_TMK) == []


def test_a_rest_that_goes_on_while_the_others_wait_now_and_then_is_one() -> None:
    """A machine at half its duty cycle, in a job that a congestion holds up again and again."""
    values_TMK = spinning()
    values_TMK[FREEZES[0] :, 5, DUTY] *= 0.5
    for row in FREEZES:
        values_TMK[row : row + 2, :, WORKS] *= np.array([0.2, 0.6, 0.05, 0.05])
    lines = [item.message for verdict in said(values_TMK) for item in verdict.evidence]
    assert not [line for line in lines if "again and again" in line]


def test_checkpoints_that_one_machine_shows_a_minute_before_all_name_none() -> None:
    """Its clock is off: each time it rests while all others spin."""
    values_TMK = spinning(300)
    for row in range(60, 290, 40):
        checkpoint(values_TMK, row, [0, 1, 2, 3, 4, 6, 7])
        checkpoint(values_TMK, row - 14, [5])
    assert [verdict.machines for verdict in said(values_TMK)] == []


def test_the_machine_that_writes_on_after_each_checkpoint_is_not_named() -> None:
    values_TMK = spinning(300)
    for row in range(60, 290, 40):
        checkpoint(values_TMK, row, list(range(8)))
        values_TMK[row + 4 : row + 8, :, WORKS] *= np.array([0.2, 0.6, 0.05, 0.05])
        checkpoint(values_TMK, row + 4, [0])
    assert said(values_TMK) == []


@pytest.mark.parametrize(
    "machines, named",
    [([3], [("m03",)]), ([3, 6], [("m03", "m06")]), (list(range(8)), [])],
    ids=["one machine", "both ends of a cable", "a switch of all"],
)
def test_a_link_that_goes_down_again_and_again_is_paged(machines: list[int], named: list[tuple[str, ...]]) -> None:
    values_TMK = spinning()
    values_TMK[:, :, DUTY] = np.arange(8)  # what they have counted since they were started
    for row in FREEZES:
        values_TMK[row:, machines, DUTY] += 1.0
    found = said(values_TMK, (*METRICS, "link_downs_total"))
    assert [verdict.machines for verdict in found] == named and all(verdict.tier == "page" for verdict in found)


@pytest.mark.parametrize(
    ("rows", "felt", "paged"),
    [((60, 100), True, True), ((60,), True, False), ((60, 150), True, False), ((60, 100), False, False), ((60, 90, 120), False, True)],
    ids=["twice", "once", "long ago", "twice, a spare link", "three times, not felt"],
)
def test_a_link_that_goes_down_twice_within_minutes_while_the_job_waits_is_paged(rows: tuple[int, ...], felt: bool, paged: bool) -> None:
    values_TMK = np.concatenate([healthy(ROWS), np.full((ROWS, 8, 1), 3.0)], axis=2)
    for row in rows:
        values_TMK[row:, 5, -1] += 1.0
        values_TMK[row - 1, :, :-1] *= 0.6 if felt else 1.0
    found = said(values_TMK, (*METRICS, "link_downs_total"))
    assert [(verdict.machines, verdict.tier) for verdict in found] == [(("m05",), "page")] * paged
    assert not (paged and felt) or "2 times within ten minutes" in found[0].evidence[0].message


@pytest.mark.parametrize(("others", "paged"), [((), True), ((2,), False)], ids=["alone", "beside another"])
def test_gpus_that_are_slowed_for_seconds_again_and_again_are_paged(others: tuple[int, ...], paged: bool) -> None:
    """Each time for too short a while to last."""
    values_TMK = np.concatenate([healthy(ROWS), np.zeros((ROWS, 8, 1))], axis=2)
    for row in FREEZES:
        values_TMK[row : row + 2, [5, *others], -1] = 64.0
    found = said(values_TMK, (*METRICS, "gpu_throttle_reasons"))
    assert [(verdict.machines, verdict.tier) for verdict in found] == [(("m05",), "page")] * paged


@pytest.mark.parametrize(
    ("down_at", "others", "stops", "paged"),
    [(69, (), True, True), (69, (2, 3), True, False), (69, (), False, False), (40, (), True, False)],
    ids=["as it stops", "of others too", "works on", "minutes before"],
)
def test_a_link_that_goes_down_once_as_the_job_comes_to_stand_is_paged(
    down_at: int, others: tuple[int, ...], stops: bool, paged: bool
) -> None:
    values_TMK = np.concatenate([healthy(ROWS), np.full((ROWS, 8, 1), 3.0)], axis=2)
    values_TMK[down_at:, [5, *others], -1] += 1.0
    values_TMK[70:, :, WORKS] *= np.array([0.2, 0.6, 0.05, 0.05]) if stops else 1.0
    found = said(values_TMK, (*METRICS, "link_downs_total"))
    assert [(verdict.machines, verdict.tier) for verdict in found] == [(("m05",), "page")] * paged
    assert not paged or "as the job came to stand" in found[0].evidence[0].message
