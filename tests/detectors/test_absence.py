"""A training that stands: who fell silent as it came to stand is named, whatever the job did before; who fails minutes later is not
evicted."""

from __future__ import annotations

import numpy as np
import pytest

from tests.detectors.dozen import INTERVAL_S, MACHINES, accusations, healthy

ROWS = 260


@pytest.mark.parametrize("slow_before", [0, 30])
def test_who_fell_silent_as_the_training_came_to_stand_is_named_though_it_was_slow_before(slow_before: int) -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[120 - slow_before :, :, :2] *= 0.8
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    present_TM[120:, 4] = False
    found = accusations(factors_TMK, present_TM)
    assert {(verdict.machines, verdict.cause) for verdict in found} == {(("m04",), "absence")}
    assert found[0].time_s - 120 * INTERVAL_S <= 60.0


def test_what_was_odd_of_a_machine_when_it_fell_silent_does_not_silence_its_silence() -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[112:120, 4, 1] *= 0.75
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    present_TM[120:, 4] = False
    found = accusations(factors_TMK, present_TM)
    assert {(verdict.machines, verdict.cause) for verdict in found} == {(("m04",), "absence")}
    assert found[0].time_s - 120 * INTERVAL_S <= 60.0


@pytest.mark.parametrize(("later", "tier"), [(1, "evict"), (40, "page")])
def test_a_machine_that_fails_minutes_after_the_training_came_to_stand_is_no_reason_to_evict(later: int, tier: str) -> None:
    factors_TMK = healthy(ROWS)
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    factors_TMK[120 + later :, 4, :2] *= np.array([0.05, 0.05])
    found = accusations(factors_TMK, np.full((ROWS, MACHINES), True))
    assert {(verdict.machines, verdict.tier) for verdict in found} == {(("m04",), tier)}


HALTING = ("gpu_sm_activity_ratio", "nvlink_bandwidth_bytes_per_second", "cpu_usage_ratio")


@pytest.mark.parametrize(("later", "accused"), [(0, {("m04",)}), (8, {("m04",)}), (16, set())])
def test_what_begins_plainly_while_the_training_has_stood_for_a_while_and_passes_is_nobodys_fault(
    later: int, accused: set[tuple[str, ...]]
) -> None:
    factors_TMK = healthy(ROWS)
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    factors_TMK[120 + later : 127 + later, 4, 2] *= 0.4
    found = accusations(factors_TMK, np.full((ROWS, MACHINES), True), HALTING)
    assert {verdict.machines for verdict in found} == accused


RESTING = ("gpu_duty_cycle_ratio", "nvlink_bandwidth_bytes_per_second", "memory_usage_ratio")


@pytest.mark.parametrize(("rests", "named"), [(60, True), (16, False)])
def test_who_fell_silent_as_all_came_to_rest_is_paged_once_that_has_lasted_and_never_evicted(rests: int, named: bool) -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121 : 121 + rests, :, :2] *= np.array([0.02, 0.001])
    present_TM[120:, 4] = False
    found = accusations(factors_TMK, present_TM, RESTING)
    assert {(verdict.machines, verdict.cause, verdict.tier) for verdict in found} == ({(("m04",), "absence", "page")} if named else set())
    assert all(90.0 <= verdict.time_s - 120 * INTERVAL_S <= 240.0 for verdict in found)


@pytest.mark.parametrize(("earlier", "named"), [(5, "evict"), (30, "page"), (60, None)])
def test_who_fell_silent_minutes_before_the_training_came_to_stand_is_paged_if_nobody_else_is_odd(earlier: int, named: str | None) -> None:
    """In rows of 5 s: collectives may time out late; an exporter that died ten minutes ago has nothing to do with it."""
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    present_TM[120 - earlier :, 4] = False
    found = accusations(factors_TMK, present_TM)
    assert {(verdict.machines, verdict.cause) for verdict in found} == ({(("m04",), "absence")} if named else set())
    assert {verdict.tier for verdict in found} <= {"page", named}
    assert all(found[-1].tier == named for _ in found)


@pytest.mark.parametrize(("later", "machines"), [(6, {("m04",)}), (20, set())])
def test_who_fell_silent_half_a_minute_after_the_training_came_to_stand_is_named_if_none_else_is_odd(
    later: int, machines: set[tuple[str, ...]]
) -> None:
    """A machine that dies slowly: its last samples come, late, while all others wait already. Minutes later an exporter may die."""
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    present_TM[121 + later :, 4] = False
    assert {verdict.machines for verdict in accusations(factors_TMK, present_TM)} == machines


@pytest.mark.parametrize(("stands", "tiers"), [(ROWS, ["page", "evict"]), (20, ["page"])])
def test_a_silent_machine_without_which_the_training_goes_on_is_not_evicted(stands: int, tiers: list[str]) -> None:
    """Its exporter died as the training paused for 100 s: the silence was worth a page, and what came after shows that it was no more."""
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121 : 121 + stands, :, :2] *= np.array([0.35, 0.15])
    present_TM[120:, 4] = False
    assert [verdict.tier for verdict in accusations(factors_TMK, present_TM)] == tiers


@pytest.mark.parametrize(("joins", "named"), [(116, set()), (126, set()), (40, {("m04",)})])
def test_a_machine_that_was_exchanged_in_a_restart_is_not_looked_for(joins: int, named: set[tuple[str, ...]]) -> None:
    """Another one is heard for the first time as it falls silent, before the job works again; one that came long before is no exchange."""
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:170, :, :2] *= np.array([0.35, 0.15])
    present_TM[120:, 4] = False
    present_TM[:joins, 9] = False
    assert {verdict.machines for verdict in accusations(factors_TMK, present_TM)} == named


def test_who_fell_silent_while_the_training_was_only_slow_is_not_evicted_when_it_stands_minutes_later() -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[60:, :, :2] *= 0.8
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    present_TM[90:, 4] = False
    assert {verdict.tier for verdict in accusations(factors_TMK, present_TM)} <= {"page"}


def test_an_old_silence_does_not_contest_who_is_odd_in_the_stall() -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    factors_TMK[120:, 7, :2] *= np.array([0.1, 0.05])
    present_TM[90:, 4] = False
    assert {verdict.machines for verdict in accusations(factors_TMK, present_TM)} == {("m07",)}


def test_silence_counts_nothing_in_a_hiccup_of_all() -> None:
    """A link that flaps for some seconds, forty seconds after an exporter died."""
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:124, :, :2] *= np.array([0.35, 0.15])
    present_TM[113:, 4] = False
    assert accusations(factors_TMK, present_TM) == []


@pytest.mark.parametrize(("stands", "accused"), [(6, set()), (ROWS, {("m04",)})])
def test_where_a_checkpoint_looks_like_a_stall_silence_waits_until_it_has_lasted(stands: int, accused: set[tuple[str, ...]]) -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121 : 121 + stands, :, :2] *= np.array([0.35, 0.15])
    present_TM[117:128, 4] = False  # and is back a row after the others
    present_TM[128:, 4] = stands < ROWS
    assert {verdict.machines for verdict in accusations(factors_TMK, present_TM)} == accused


def test_silence_names_no_machine_while_the_gpus_of_all_compute_as_ever() -> None:
    """An evaluation sends nothing, and an agent has been lost as it began."""
    metrics = ("gpu_sm_activity_ratio", "rdma_throughput_bytes_per_second", "gpu_tensor_activity_ratio")
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[120:180, :, 1] *= 0.05
    factors_TMK[120:180, :, [0, 2]] *= 1.1
    present_TM[119:, 4] = False
    assert accusations(factors_TMK, present_TM, metrics) == []
