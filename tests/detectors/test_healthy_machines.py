"""What looks like one machine's fault and is none: an exporter's unit, a stage's turn, a checkpoint, a stop that the job always makes."""

from __future__ import annotations

import numpy as np
import pytest
import small_job
from small_job import AT_REST, METRICS, WORKS, accused, at, healthy, watch

from minder.diagnose.detectors.corroboration import is_corroborated
from minder.model.evidence import Evidence, Scores

BEGAN = 70
SPINS = np.array([0.3, 0.6, 0.05, 0.05])  # of what works, while machines wait
PROFILED = (*METRICS, "gpu_tensor_activity_ratio", "gpu_memory_bandwidth_ratio")


def profiled(rows: int) -> np.ndarray:
    return np.concatenate([healthy(rows), healthy(rows, seed=4)[:, :, [0, 0]] * [0.5, 0.6]], axis=2)


def beside(values_TMK: np.ndarray, usual: float, noise: float, seed: int) -> np.ndarray:
    """With one metric more."""
    more_TM1 = usual * np.exp(np.random.default_rng(seed).normal(0.0, noise, (*values_TMK.shape[:2], 1)))
    return np.concatenate([values_TMK, more_TM1], axis=2)


def test_a_clock_rate_that_no_gpu_has_is_no_data() -> None:
    values_TMK = healthy(BEGAN + 60)
    values_TMK[BEGAN - 10 :, :, WORKS] *= SPINS
    values_TMK[BEGAN:, 2, at("gpu_clock_hertz")] *= 1e-3
    assert accused(values_TMK) == []


@pytest.mark.parametrize("share", [1e-3, 0.05])
def test_traffic_in_another_unit_says_nothing_when_all_stand_soon_after(share: float) -> None:
    """A thousandth is a unit; any other share may be a link's."""
    values_TMK = healthy(BEGAN + 40)
    values_TMK[BEGAN:, 2, at("nvlink_bandwidth_bytes_per_second")] *= share
    values_TMK[BEGAN + 6 :, :, at("rdma_throughput_bytes_per_second")] *= 0.05
    values_TMK[BEGAN + 6 :, :, at("gpu_sm_activity_ratio")] *= 0.5
    assert {machines for machines, _, _ in accused(values_TMK)} == (set() if share == 1e-3 else {("m02",)})


def test_a_processor_counted_in_percent_stays_contradicted_when_all_are_slowed_later() -> None:
    values_TMK = beside(healthy(BEGAN + 80), 0.2, 0.05, seed=6)
    values_TMK[BEGAN:, 2, -1] *= 0.01
    values_TMK[BEGAN + 40 :, :, WORKS] *= 0.75
    assert watch(values_TMK, metrics=(*METRICS, "cpu_usage_ratio"))[0] == []


def test_a_clock_that_is_off_names_none_while_all_work_more_than_they_did() -> None:
    """It shows a checkpoint that the others do not; that these send more than before is no sign that they wait."""
    values_TMK = healthy(BEGAN + 60)
    values_TMK[BEGAN - 10 :, :, at("rdma_throughput_bytes_per_second")] *= 1.7
    values_TMK[BEGAN : BEGAN + 18, 2, WORKS] *= AT_REST
    assert accused(values_TMK) == []


@pytest.mark.parametrize(("sends", "named"), [(1.0, False), (0.5, True)])
def test_gauges_that_meet_another_part_of_each_step_are_contradicted_by_the_traffic(sends: float, named: bool) -> None:
    values_TMK = profiled(BEGAN + 60)
    fields = [PROFILED.index(name) for name in (*PROFILED[-2:], "gpu_sm_activity_ratio", "gpu_power_draw_watts")]
    links = [at("nvlink_bandwidth_bytes_per_second"), at("rdma_throughput_bytes_per_second")]
    values_TMK[BEGAN:, 2, fields] *= np.array([0.2, 0.5, 0.4, 0.6])
    values_TMK[BEGAN:, 2, links] *= sends * 0.9
    assert {verdict.machines for verdict in watch(values_TMK, metrics=PROFILED)[0]} == ({("m02",)} if named else set())


def test_traffic_that_halves_is_counted_one_way_at_slow_scrapes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_job, "INTERVAL_S", 30.0)
    values_TMK = profiled(BEGAN + 20)
    links = [at("nvlink_bandwidth_bytes_per_second"), at("rdma_throughput_bytes_per_second")]
    values_TMK[BEGAN:, 2, links[0]] *= 0.5
    assert watch(values_TMK, metrics=PROFILED)[0] == []


def test_the_processes_of_a_hung_job_end_one_by_one_and_name_none() -> None:
    values_TMK = beside(healthy(BEGAN + 80), 0.2, 0.05, seed=6)
    values_TMK[BEGAN:, :, WORKS] *= SPINS
    values_TMK[BEGAN + 24 :, 2, -1] *= 0.3
    assert watch(values_TMK, metrics=(*METRICS, "cpu_usage_ratio"))[0] == []


def test_the_one_stage_that_works_in_its_turn_is_not_what_the_others_wait_for() -> None:
    values_TMK = healthy(BEGAN + 40)
    values_TMK[:, 7, WORKS] *= SPINS
    values_TMK[BEGAN:, :7, WORKS] *= SPINS
    values_TMK[BEGAN:, 7, WORKS] /= SPINS
    assert accused(values_TMK, {f"m{m:02d}": "rollout" if m == 7 else "trainer" for m in range(8)}) == []


def test_congestion_that_rises_to_less_than_all_others_have_is_none() -> None:
    ecn = at("ecn_packets_per_second")
    values_TMK = healthy(BEGAN + 40)
    values_TMK[:, :, ecn] *= 200.0
    values_TMK[:BEGAN, 2, ecn] *= 1e-4
    values_TMK[BEGAN:, 2, ecn] *= 0.1
    assert accused(values_TMK) == []


def test_congestion_of_a_few_that_only_stays_while_that_of_all_others_ends_is_no_group() -> None:
    ecn = at("ecn_packets_per_second")
    values_TMK = healthy(BEGAN + 60, machines=12)
    values_TMK[:, :3, ecn] *= 0.003
    values_TMK[BEGAN:, :, WORKS] *= SPINS
    values_TMK[BEGAN:, 3:, ecn] = 0.0
    assert accused(values_TMK) == []


@pytest.mark.parametrize(("left", "named"), [(0.5, False), (0.03, True)])
def test_silence_says_nothing_while_the_others_multiply_half_as_much(left: float, named: bool) -> None:
    """An evaluation sends nothing, and computes."""
    values_TMK = profiled(BEGAN + 30)
    values_TMK[BEGAN:, :, [PROFILED.index(name) for name in (*PROFILED[-2:], "gpu_sm_activity_ratio")]] *= left
    values_TMK[BEGAN:, :, [at("gpu_power_draw_watts")]] *= 0.6
    values_TMK[BEGAN:, :, [at(name) for name in ("nvlink_bandwidth_bytes_per_second", "rdma_throughput_bytes_per_second")]] *= 0.02
    values_TMK[BEGAN - 1 :, 2] = np.nan
    assert {verdict.machines for verdict in watch(values_TMK, metrics=PROFILED)[0]} == ({("m02",)} if named else set())


def test_a_job_that_stands_in_turns_waits_for_no_agent_that_is_lost() -> None:
    turn = 40  # rows, 22 of them standing
    values_TMK = beside(healthy(BEGAN + 6 * turn), 0.98, 0.01, seed=5)
    for first in range(BEGAN, BEGAN + 6 * turn, turn):
        values_TMK[first : first + 22, :, WORKS] *= SPINS
    values_TMK[BEGAN + 5 * turn - 1 :, 2] = np.nan
    assert watch(values_TMK, metrics=(*METRICS, "gpu_duty_cycle_ratio"))[0] == []


def test_silence_is_no_reason_to_evict_until_the_stop_has_lasted_two_minutes() -> None:
    values_TMK = beside(healthy(BEGAN + 40), 0.98, 0.01, seed=5)
    values_TMK[BEGAN:, :, WORKS] *= SPINS
    values_TMK[BEGAN - 12 :, 2] = np.nan
    found = [(item.tier, item.time_s - 1.7e9) for item in watch(values_TMK, metrics=(*METRICS, "gpu_duty_cycle_ratio"))[0]]
    assert [tier for tier, _ in found] == ["page", "evict"]
    assert found[1][1] >= (BEGAN + 24) * 5.0


@pytest.mark.parametrize(("waits", "writes"), [(False, 1.0), (True, 6.0)], ids=["ups-and-downs", "checkpoints"])
def test_rests_that_no_machine_waits_for_do_not_come_back(waits: bool, writes: float) -> None:
    """A job whose level goes up and down with each step; and one in which all write, and one rests for longest."""
    values_TMK = beside(beside(healthy(170), 0.98, 0.01, seed=5), 3e7, 0.1, seed=7)
    if not waits:
        values_TMK[::2, :, WORKS] *= np.array([0.5, 0.9, 0.4, 0.4])
    for row in (60, 80, 100):
        if waits:
            values_TMK[row : row + 2, :, WORKS] *= np.array([0.2, 0.6, 0.05, 0.05])
        values_TMK[row : row + 2, :, -1] *= writes
        values_TMK[row : row + 2, 5, -2] = 0.1
    assert watch(values_TMK, metrics=(*METRICS, "gpu_duty_cycle_ratio", "tcp_throughput_bytes_per_second"))[0] == []


@pytest.mark.parametrize(
    ("metric", "observed", "evicts"),
    [
        ("nvlink_bandwidth_bytes_per_second", 300.0, True),
        ("nvlink_bandwidth_bytes_per_second", 600.0, False),
        ("tcp_throughput_bytes_per_second", 300.0, False),
    ],
    ids=["sends-less", "sends-more", "tcp"],
)
def test_an_eviction_asks_for_a_second_witness_that_is_one(metric: str, observed: float, evicts: bool) -> None:
    shown = tuple(
        Evidence("telemetry", "m00", "", name, None, value, expected, 0.0)
        for name, value, expected in (("gpu_clock_hertz", 1.2e9, 1.7e9), (metric, observed, 500.0))
    )
    score_M, cause = np.array([200.0, 0.0]), {"m00": "slowdown"}
    scores = Scores(100.0, ("m00", "m01"), score_M, 90.0, {"m00": shown}, {"m00": 0.0}, cause, False, (0.0, 50.0))
    assert is_corroborated(scores, 0) is evicts


def test_what_only_stays_while_all_others_stand_is_no_second_witness() -> None:
    """One goes on to send as it did, for a checkpoint or a log, and meets congestion."""
    values_TMK = healthy(BEGAN + 30)
    values_TMK[BEGAN:, [m for m in range(8) if m != 2], at("rdma_throughput_bytes_per_second")] *= 0.05
    values_TMK[BEGAN:, :, WORKS[:3]] *= SPINS[:3]
    values_TMK[BEGAN + 2 :, 2, at("ecn_packets_per_second")] *= 30.0
    assert {verdict.tier for verdict in watch(values_TMK)[0]} == {"page"}


def test_who_works_on_while_its_stage_rests_has_stayed_where_it_was() -> None:
    """Trainers spin, and rollout machines rest, but for one that paused for a moment; their duty cycles differ by role."""
    stages = {f"m{m:02d}": "trainer" if m < 10 else "rollout" for m in range(16)}
    values_TMK = beside(healthy(BEGAN + 30, machines=16), 0.98, 0.005, seed=5)
    values_TMK[:, 10:, -1] *= 0.7
    values_TMK[BEGAN:, :10, WORKS] *= SPINS
    values_TMK[BEGAN:, 10:15, WORKS] *= AT_REST
    values_TMK[BEGAN:, 10:15, -1] *= 0.3
    values_TMK[BEGAN + 2 : BEGAN + 5, 15, WORKS] *= AT_REST
    values_TMK[BEGAN + 2 : BEGAN + 5, 15, -1] *= 0.02
    assert watch(values_TMK, stages, (*METRICS, "gpu_duty_cycle_ratio"))[0] == []


def test_what_was_learned_while_a_machine_did_not_work_is_no_yardstick_once_it_works_as_all_do() -> None:
    """It worked at a third of what the others did when it was first seen; minutes after it has come to them, all are slowed."""
    values_TMK = healthy(200)
    values_TMK[:100, 5, WORKS] *= np.array([0.3, 0.5, 0.2, 0.2])
    values_TMK[150:, :, WORKS] *= 0.7
    assert accused(values_TMK) == []


@pytest.mark.parametrize(("silent_s", "corroborated"), [(15.0, False), (125.0, True)])
def test_two_minutes_of_silence_are_not_what_was_odd_before_it(silent_s: float, corroborated: bool) -> None:
    """It was odd for three minutes, as one whose clock is early, and then its samples end."""
    silence = Evidence("telemetry", "m00", "silent", since_s=200.0 - silent_s)
    scores = Scores(200.0, ("m00", "m01"), np.array([100.0, 0.0]), 90.0, {"m00": (silence,)}, {"m00": 20.0}, {"m00": "absence"})
    assert is_corroborated(scores, 0) == corroborated
