"""Who stopped a job that stands: silence as most of its work stopped, beside what a standstill makes of all others."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.absence import Absence
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.presence import RowStatus
from minder.diagnose.detectors.traits import TraitTable
from tests.detectors.dozen import MACHINES, METRICS, accusations, healthy
from tests.detectors.one_stage import one_stage

RESTING = ("gpu_duty_cycle_ratio", "nvlink_bandwidth_bytes_per_second", "memory_usage_ratio")
ROWS = 200


def test_who_fell_silent_as_most_of_the_work_stopped_is_named_though_one_kind_of_it_has_long_been_low() -> None:
    """A counter that has fallen is no stop: minutes later the rest of the work ends."""
    metrics = (*METRICS, "rdma_throughput_bytes_per_second")
    factors_TMK, present_TM = np.concatenate([healthy(ROWS), healthy(ROWS)[::-1, :, 1:2]], axis=2), np.full((ROWS, MACHINES), True)
    factors_TMK[80:, :, 3] *= 0.3
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    present_TM[120:, 4] = False
    found = accusations(factors_TMK, present_TM, metrics)
    assert {(verdict.machines, verdict.cause) for verdict in found} == {(("m04",), "absence")}


@pytest.mark.parametrize(("odd_since", "named"), [(124, "m04"), (110, "m07")])
def test_who_turns_odd_only_in_the_standstill_does_not_contest_who_fell_silent_as_it_began(odd_since: int, named: str) -> None:
    """A machine of another role stands elsewhere when all wait. One that was odd before is why."""
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:, :, 1] *= 0.15
    factors_TMK[odd_since:, 7, :2] *= np.array([0.5, 0.2])
    present_TM[120:, 4] = False
    assert {verdict.machines for verdict in accusations(factors_TMK, present_TM, RESTING)} == {(named,)}


def test_an_exporter_that_died_a_minute_before_does_not_contest_who_fell_silent_as_the_training_stopped() -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    present_TM[120:, 4] = present_TM[109:, 7] = False
    assert {verdict.machines for verdict in accusations(factors_TMK, present_TM)} == {("m04",)}


@pytest.mark.parametrize(("stands", "named"), [(True, {("m01", "m03", "m04", "m05", "m09")}), (False, set())])
def test_two_fifths_of_a_job_that_fall_silent_are_lost_where_the_others_stand(stands: bool, named: set[tuple[str, ...]]) -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15]) if stands else 1.0
    present_TM[120:, [1, 3, 4, 5, 9]] = False
    assert {tuple(sorted(verdict.machines)) for verdict in accusations(factors_TMK, present_TM)} == named


def test_a_machine_that_is_heard_while_its_gpus_are_read_no_more_was_not_exchanged() -> None:
    factors_TMK, present_TM = healthy(ROWS), np.full((ROWS, MACHINES), True)
    factors_TMK[121:, :, :2] *= np.array([0.35, 0.15])
    factors_TMK[120:, 4, :2] = np.nan
    present_TM[:126, 9] = False
    assert {verdict.machines for verdict in accusations(factors_TMK, present_TM)} == {("m04",)}


@pytest.mark.parametrize(("stood_s", "speaks"), [(100.0, True), (10.0, False)])
def test_a_rest_that_follows_a_long_standstill_goes_on_being_one(stood_s: float, speaks: bool) -> None:
    """Processes that are ended leave GPUs at rest. A rest into which a training goes is a checkpoint, or may be."""
    now_s, heard_M = 1000.0, np.array([False, True, True, True, True])
    nothing_KM = np.zeros((len(RESTING), 5))
    silence_M = np.where(heard_M, 0.0, 30.0 + stood_s)
    status = RowStatus(None, heard_M, 5.0, 5.0, silence_M, silence_M, ~heard_M, False, nothing_KM, ~heard_M & False, ~heard_M & False)
    phase = Phase(False, True, 30.0, False, 1.0, now_s - 30.0 - stood_s, np.array([-2.0, -4.0, 0.0]), stalled=True)
    phase.stopped_s = phase.effect_since_s
    stage = one_stage(Absence, [f"m{m:02d}" for m in range(5)], RESTING)
    assert bool(stage.absence_M(TraitTable(RESTING), status, phase, now_s)[0] > 0.0) == speaks
