"""The default detector through its rule and the judge, on generated telemetry: each fault kind is found, each nuisance is forgiven."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.verdicts.judge import Judge
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.ingest.windows import align_columns, rows_of
from minder.model.evidence import Evidence, Verdict
from minder.model.observation import Observation
from minder.model.telemetry import Window

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


def accusations(columns: Any, end_s: float = -np.inf) -> list[Verdict]:
    judge = Judge([TelemetryRule(DefaultDetector(columns.stages))])
    window = align_columns(columns, columns.interval_s, end_s=end_s)
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    return [verdict for verdict in found if verdict.kind != "recovered" and verdict.tier != "watch"]


QUICK = ("nic_dropout", "machine_unreachable", "pcie_downgrade")


@pytest.mark.parametrize(
    "fault", [*QUICK, *(pytest.param(fault, marks=pytest.mark.release) for fault in STALLS + SLOWS if fault not in QUICK)]
)
def test_each_fault_kind_is_found(generator: ModuleType, fault: str) -> None:
    recipe = generator.Recipe(seed=3, fault=fault, machines=8, pipeline=2, interval_s=5.0, duration_s=1000, onset_s=500.0)
    columns = generator.generate(recipe)
    found = accusations(columns)
    assert {verdict.machines for verdict in found} == {(columns.culprit,)}
    assert 0.0 <= found[0].time_s - columns.onset_s <= 420.0
    assert found[0].evidence
    assert found[0].since_s <= found[0].time_s


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.release) for seed in (0, 2))])
def test_a_healthy_job_accuses_nobody(generator: ModuleType, seed: int) -> None:
    recipe = generator.Recipe(seed=seed, machines=(4, 8, 24)[seed], pipeline=(1, 2, 4)[seed], interval_s=10.0, duration_s=1500)
    assert accusations(generator.generate(recipe)) == []


@pytest.mark.parametrize(
    "nuisance",
    [
        *("skewed_clock", "link_flap", "congestion", "restart"),
        *(
            pytest.param(name, marks=pytest.mark.lab)
            for name in (
                "wander",
                "drift",
                "other_hardware",
                "evaluation",
                "late_dark",
                "warm_slot",
                "sidecar",
                "page_cache",
                "stuck_sensor",
                "exporter_dies",
                "outage",
            )
        ),
    ],
)
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


@pytest.mark.parametrize("seed", [2, pytest.param(1, marks=pytest.mark.release)])
def test_a_checkpoint_right_before_the_fault_only_delays(generator: ModuleType, seed: int) -> None:
    """Whatever the checkpoints of the seed are, a plain fault at 1 Hz is named within two minutes."""
    recipe = generator.Recipe(seed=seed, fault="hang", machines=8, pipeline=1, interval_s=1.0, duration_s=460, onset_s=330.0)
    columns = generator.generate(recipe)
    found = accusations(columns)
    assert {verdict.machines for verdict in found} == {(columns.culprit,)}
    assert found[0].time_s - columns.onset_s <= 120.0


@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 10**6), fault=st.sampled_from(STALLS + SLOWS), nuisance=st.sampled_from(["wander", "skewed_clock", "late_dark"]))
def test_cutting_a_recording_at_its_verdict_gives_the_same_verdict(generator: ModuleType, seed: int, fault: str, nuisance: str) -> None:
    recipe = generator.Recipe(
        seed=seed, fault=fault, machines=6, pipeline=2, interval_s=10.0, duration_s=560, onset_s=250.0, nuisances=(nuisance,)
    )
    columns = generator.generate(recipe)
    found = accusations(columns)
    if not found:
        return
    known = columns.times_N <= found[0].time_s
    for name in ("times_N", "machine_N", "device_N", "values_NK"):
        setattr(columns, name, getattr(columns, name)[known])
    columns_end = found[0].time_s
    assert accusations(columns, end_s=columns_end)[:1] == found[:1]


def watts(machines: int, devices: int = 1, rows: int = 90) -> np.ndarray:
    """Power, SM activity and network of healthy machines, (T, M, D, 3)."""
    rng = np.random.default_rng(7)
    return np.array([500.0, 0.6, 1e11]) * np.exp(rng.normal(0, 0.02, (rows, machines, devices, 3)))


def told(window: Window, stages: dict[str, int] | None = None) -> list[Verdict]:
    judge = Judge([TelemetryRule(DefaultDetector(stages))])
    return [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]


def window_of(values_TMDK: np.ndarray, interval_s: float = 5.0) -> Window:
    from minder.ingest.windows.devices import reduce_devices

    rows, machines, devices, _ = values_TMDK.shape
    device_axis_last = np.moveaxis(values_TMDK, 2, 3)
    values, deviating, low, high = reduce_devices(np.full((rows, machines, 3), np.nan), device_axis_last)
    names = tuple(f"m{m:02d}" for m in range(machines))
    metrics = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "rdma_throughput_bytes_per_second")
    times_T, present_TM = 1.7e9 + interval_s * np.arange(rows), np.ones((rows, machines), dtype=bool)
    if devices == 1:
        return Window(times_T, names, metrics, values, present_TM)
    return Window(times_T, names, metrics, values, present_TM, deviating, tuple(f"gpu{d}" for d in range(devices)), low, high)


def test_evidence_names_the_sick_device_with_what_it_shows_and_what_was_expected() -> None:
    values_TMDK = watts(6, devices=8)
    values_TMDK[60:] *= 0.6
    values_TMDK[60:, 4, 5, :2] = np.array([90.0, 0.02]) * np.exp(np.random.default_rng(1).normal(0, 0.02, (30, 2)))
    window = window_of(values_TMDK)
    verdict = told(window)[0]
    assert verdict.machines == ("m04",)
    assert window.times_T[60] <= verdict.since_s <= window.times_T[60] + 20.0
    by_metric: dict[str | None, Evidence] = {item.metric: item for item in verdict.evidence}
    power = by_metric["gpu_power_draw_watts"]
    assert (power.machine, power.device) == ("m04", "gpu5")
    row = int(np.flatnonzero(window.times_T == verdict.time_s)[0])
    assert power.observed == pytest.approx(values_TMDK[row, 4, 5, 0], rel=1e-5)
    assert power.expected == pytest.approx(500.0 * 0.6, rel=0.1)


def test_a_machine_that_is_sick_as_a_whole_names_no_device() -> None:
    values_TMDK = watts(6, devices=8)
    values_TMDK[60:] *= 0.6
    values_TMDK[60:, 4, :, :2] *= 0.3
    verdict = told(window_of(values_TMDK))[0]
    assert verdict.machines == ("m04",)
    assert {item.device for item in verdict.evidence} == {None}


def test_machines_hit_within_seconds_are_told_as_a_group_the_first_one_first() -> None:
    values_TMDK = watts(12, rows=120)
    values_TMDK[60:] *= 0.6
    values_TMDK[60:, 7] *= 0.4
    values_TMDK[60:, 3] *= 0.4
    verdict = told(window_of(values_TMDK))[0]
    assert (verdict.kind, verdict.tier, set(verdict.machines)) == ("group", "page", {"m03", "m07"})
    assert {item.machine for item in verdict.evidence} == {"m03", "m07"}


def test_a_link_that_heals_within_seconds_evicts_nobody() -> None:
    values_TMDK = watts(8, rows=120)
    values_TMDK[60:62] *= 0.5
    values_TMDK[60:62, 2, :, 2] *= 0.02
    assert told(window_of(values_TMDK)) == []


def test_the_first_to_fall_is_named_though_the_others_fall_as_low() -> None:
    values_TMDK = watts(8)
    values_TMDK[60:, 5] *= 0.3
    values_TMDK[65:, :5] *= 0.3
    values_TMDK[65:, 6:] *= 0.3
    assert {verdict.machines for verdict in told(window_of(values_TMDK))} == {("m05",)}


@pytest.mark.parametrize(("jitters", "accused"), [(1, {("m05",)}), (4, set())])
def test_having_fallen_first_says_nothing_where_one_or_the_other_jitters_all_the_time(jitters: int, accused: set[tuple[str, ...]]) -> None:
    values_TMDK = watts(16, rows=200)
    for machine in range(jitters):
        values_TMDK[70 + 20 * machine : 74 + 20 * machine, machine] *= 0.3
    values_TMDK[160:, 5] *= 0.3
    values_TMDK[165:, :5] *= 0.3
    values_TMDK[165:, 6:] *= 0.3
    assert {verdict.machines for verdict in told(window_of(values_TMDK))} == accused


def test_a_jitter_that_is_over_when_the_job_stops_accuses_nobody() -> None:
    values_TMDK = watts(8)
    values_TMDK[60:64, 5, :, 1] *= 0.5
    values_TMDK[66:] *= 0.5
    assert told(window_of(values_TMDK)) == []


def test_a_machine_whose_samples_merely_come_first_is_not_accused_for_a_phase_of_all() -> None:
    values_TMDK = watts(8, rows=140)
    for start in (50, 75, 100, 125):
        values_TMDK[start : start + 6] *= 0.2
        values_TMDK[start - 1, 3] *= 0.2
    assert told(window_of(values_TMDK)) == []


def test_a_fault_minutes_after_a_start_up_is_found() -> None:
    values_TMDK = watts(8, rows=110)
    values_TMDK[:24] *= np.array([0.25, 0.12, 0.05])  # two minutes of loading, three of work
    values_TMDK[60:] *= np.array([0.5, 0.4, 0.1])
    values_TMDK[60:, 5] *= np.array([0.5, 0.1, 0.1])
    found = told(window_of(values_TMDK))
    assert {verdict.machines for verdict in found} == {("m05",)}
    assert found[0].since_s >= 1.7e9 + 60 * 5.0


def test_a_standing_gap_in_a_stage_of_two_does_not_fade() -> None:
    """Its stage-mate is as far from it as it is from its stage-mate, and must not make that usual."""
    values_TMDK = watts(4, rows=160)
    values_TMDK[60:, 2, :, 2] *= 0.4
    window = window_of(values_TMDK)
    detector = DefaultDetector({"m00": 0, "m01": 0, "m02": 1, "m03": 1})
    size_T = []
    for row in rows_of(window):
        detector.score(row)
        detector.learn(row, frozenset())
        yardstick, place = detector.state()["stages"]["Baseline"]["stage_quick"], 2 * 4 + 2  # of the third metric and the third machine
        size_T.append(abs(yardstick["smooth_KM"][place]) / float(yardstick["unit_KM"][place]))
    assert size_T[75] > 8.0
    assert min(size_T[75:]) > 0.9 * size_T[75]


@pytest.mark.parametrize("late", [5, 7])
def test_a_machine_whose_clock_is_late_is_not_accused_for_what_all_do(late: int) -> None:
    """Two network metrics at 1 Hz, so that nothing tells a checkpoint from a stall; one machine does all of it seconds after the others."""
    values_TMK = watts(10, rows=500)[:, :, 0]
    level_T = np.ones(500)
    for start in (150, 200, 260, 290, 340, 400):
        level_T[start : start + 25] = 0.15
    values_TMK[:, :, 1:] *= level_T[:, None, None]
    values_TMK[:, 3, 1:] *= (np.roll(level_T, late) / level_T)[:, None]
    names = tuple(f"m{m:02d}" for m in range(10))
    metrics = ("gpu_memory_used_ratio", "nvlink_bandwidth_bytes_per_second", "rdma_throughput_bytes_per_second")
    values_TMK *= np.array([0.5 / 500.0, 1e11 / 0.6, 1.0])
    assert told(Window(1.7e9 + np.arange(500.0), names, metrics, values_TMK, np.ones((500, 10), dtype=bool))) == []


def test_a_gpu_that_clocks_higher_while_its_peers_are_stalled_is_not_accused() -> None:
    values_TMK = watts(12, rows=160)[:, :, 0]
    values_TMK[60:, :, 0] *= 0.4
    values_TMK[60:, :, 1] *= 0.3
    values_TMK[:, :, 2] *= 1.5e9 / 1e11
    values_TMK[75:, 4, 2] *= 1.25
    names = tuple(f"m{m:02d}" for m in range(12))
    metrics = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "gpu_clock_hertz")
    assert told(Window(1.7e9 + 5.0 * np.arange(160), names, metrics, values_TMK, np.ones((160, 12), dtype=bool))) == []


def congested(machines: int, interval_s: float, start: int, rows: int) -> Window:
    """From row `start` on the whole job is slower; the GPU clock of one machine, m017, is low for so many rows about then."""
    metrics = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "gpu_clock_hertz", "nvlink_bandwidth_bytes_per_second")
    values_TMK = np.exp(np.random.default_rng(5).normal(0.0, 0.02, (start + 80, machines, 4)))
    values_TMK[start:, :, (0, 1, 3)] *= 0.75
    values_TMK[start + 3 : start + 3 + rows, 17, 2] *= 0.55
    values_TMK *= np.array([500.0, 0.6, 1.5e9, 1e11])
    names = tuple(f"m{m:03d}" for m in range(machines))
    return Window(1.7e9 + interval_s * np.arange(start + 80), names, metrics, values_TMK, np.ones((start + 80, machines), dtype=bool))


@pytest.mark.parametrize(("rows", "accused"), [(1, set()), (3, set()), (10, {("m017",)})])
def test_of_many_machines_one_metric_off_for_a_few_samples_in_a_congestion_is_chance(rows: int, accused: set[tuple[str, ...]]) -> None:
    assert {verdict.machines for verdict in told(congested(500, 15.0, 90, rows)) if verdict.kind == "machine"} == accused


@pytest.mark.parametrize(("rows", "accused"), [(20, set()), (60, {("m017",)})])
def test_one_metric_off_for_some_seconds_in_a_congestion_is_chance(rows: int, accused: set[tuple[str, ...]]) -> None:
    assert {verdict.machines for verdict in told(congested(30, 1.0, 200, rows)) if verdict.kind == "machine"} == accused


def test_the_stage_that_an_evaluation_leaves_at_work_is_not_accused_though_its_traffic_falls_a_part_of_the_way() -> None:
    rng = np.random.default_rng(11)
    metrics = ("gpu_sm_activity_ratio", "gpu_graphics_activity_ratio", "rdma_throughput_bytes_per_second")
    values_TMK = np.array([0.6, 0.9, 1e11]) * np.exp(rng.normal(0, [0.02, 0.005, 0.02], (80, 6, 3)))
    values_TMK[50:66] *= np.array([0.4, 1.05, 0.12])
    values_TMK[50:66, 2] *= np.array([1 / 0.4, 0.97 / 1.05, 0.43 / 0.12])
    names = tuple(f"m{m}" for m in range(6))
    window = Window(1.7e9 + 15.0 * np.arange(80), names, metrics, values_TMK, np.full((80, 6), True))
    stages = {name: min(m, 4) for m, name in enumerate(names)}
    judge = Judge([TelemetryRule(DefaultDetector(stages))])
    found = [verdict for row in rows_of(window) for verdict in judge.judge(Observation(float(row.times_T[0]), row))[0]]
    assert [verdict.machines for verdict in found if verdict.tier in ("page", "evict")] == []


@pytest.mark.parametrize("interval_s", [5.0, 15.0])
def test_a_plain_stall_is_named_after_a_few_samples_also_at_slow_scrapes(interval_s: float) -> None:
    """One row in which the common level moves, and two of the culprit's, at 15 s."""
    values_TMDK = watts(8, rows=100)
    values_TMDK[60:] *= np.array([0.5, 0.4, 0.1])
    values_TMDK[60:, 5] *= np.array([0.5, 0.1, 0.1])
    found = told(window_of(values_TMDK, interval_s))
    assert {verdict.machines for verdict in found} == {("m05",)}
    assert found[0].time_s - 1.7e9 - 60 * interval_s <= 30.0


@pytest.mark.parametrize("behind", [1, 2])
def test_who_follows_into_a_stall_some_seconds_later_is_not_its_culprit(behind: int) -> None:
    """Clocks are off by up to 15 s: at 15 s scrapes by one sample, at 5 s by two."""
    for interval_s, late in ((15.0, 1), (5.0, behind)):
        values_TMDK = watts(8, rows=100)
        values_TMDK[60:] *= np.array([0.5, 0.4, 0.1])
        values_TMDK[60 : 60 + late, 5] /= np.array([0.5, 0.4, 0.1])
        assert told(window_of(values_TMDK, interval_s)) == []


def test_a_machine_that_lags_for_some_samples_after_a_standstill_is_not_accused_of_it() -> None:
    """The training has stood for half a minute and works again: what one machine does now has not stopped it."""
    values_TMDK = watts(8, rows=100)
    values_TMDK[60:67] *= np.array([0.55, 0.35, 0.15])
    values_TMDK[69:73, 5] *= 0.85
    assert told(window_of(values_TMDK)) == []


@pytest.mark.parametrize(("at_work", "accused"), [(3, set()), (0, {("m09",)})])
def test_who_fell_silent_is_not_accused_of_a_pause_in_which_a_stage_works_on(at_work: int, accused: set[tuple[str, ...]]) -> None:
    """Its exporter has died, and a minute later an evaluation leaves one stage of three at work."""
    metrics = ("gpu_sm_activity_ratio", "gpu_memory_used_ratio")
    names = tuple(f"m{m:02d}" for m in range(12))
    values_TMK = np.array([0.6, 0.5]) * np.exp(np.random.default_rng(3).normal(0.0, 0.02, (120, 12, 2)))
    values_TMK[78:, : 12 - at_work, 0] *= 0.33
    present_TM = np.full((120, 12), True)
    present_TM[66:, 9] = False
    values_TMK[66:, 9] = np.nan
    window = Window(1.7e9 + 5.0 * np.arange(120), names, metrics, values_TMK, present_TM)
    assert {verdict.machines for verdict in told(window, {name: m // 3 for m, name in enumerate(names)})} == accused


def test_a_busy_host_is_not_accused_for_a_congestion_that_it_hardly_takes_part_in() -> None:
    """A sidecar begins to work while the network is congested: its processor and its traffic are its own, and of the congestion it shows
    a little less than its peers."""
    metrics = (
        "gpu_power_draw_watts",
        "gpu_sm_activity_ratio",
        "ecn_packets_per_second",
        "cpu_usage_ratio",
        "tcp_throughput_bytes_per_second",
    )
    names = tuple(f"m{m:02d}" for m in range(12))
    values_TMK = np.exp(np.random.default_rng(3).normal(0.0, [0.02, 0.02, 0.2, 0.02, 0.1], (110, 12, 5)))
    values_TMK[60:78] *= np.array([0.9, 0.87, 2.7, 1.0, 1.0])
    values_TMK[60:78, 5, 2] /= 3.5
    values_TMK[68:, 5] *= np.array([1.0, 1.0, 1.0, 1.5, 4.0])
    values_TMK *= np.array([500.0, 0.6, 300.0, 0.3, 1e7])
    window = Window(1.7e9 + 10.0 * np.arange(110), names, metrics, values_TMK, np.full((110, 12), True))
    assert told(window) == []


def test_a_machine_that_reads_its_data_anew_for_a_minute_is_not_accused_while_nothing_suffers() -> None:
    metrics = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "pcie_bandwidth_bytes_per_second", "cpu_usage_ratio")
    names = tuple(f"m{m:02d}" for m in range(12))
    values_TMK = np.exp(np.random.default_rng(3).normal(0.0, [0.02, 0.02, 0.05, 0.02], (90, 12, 4)))
    values_TMK[60:66, 6] *= np.array([1.0, 1.0, 2.5, 1.6])
    values_TMK *= np.array([500.0, 0.6, 1e10, 0.3])
    assert told(Window(1.7e9 + 15.0 * np.arange(90), names, metrics, values_TMK, np.full((90, 12), True))) == []


def jammed(rise: float, farthest: float) -> Window:
    """A quarter of an hour of calm, then a jam of all for four minutes: ECN marks rise so many times, activity falls, and machines differ
    by a factor of 1.5 (one standard deviation). One machine's marks are so many times the others'."""
    rng = np.random.default_rng(7)
    machines, calm, rows = 200, 60, 76
    marks_TM = 300.0 * np.exp(0.15 * rng.standard_normal((rows, machines)))
    activity_TM = 0.7 + 0.02 * rng.standard_normal((rows, machines))
    apart_M = np.exp(0.4 * np.clip(rng.standard_normal(machines), -2.0, 2.0))
    apart_M[17] = farthest
    marks_TM[calm:] *= rise * apart_M
    activity_TM[calm:] *= 0.6
    names = tuple(f"m{m}" for m in range(machines))
    values_TMK = np.stack([marks_TM, activity_TM], axis=2)
    times_T = 15.0 * np.arange(rows)
    return Window(times_T, names, ("ecn_packets_per_second", "gpu_sm_activity_ratio"), values_TMK, np.ones((rows, machines), dtype=bool))


@pytest.mark.parametrize("rise", [8.0, 1.6])
@pytest.mark.parametrize(("farthest", "accused"), [(4.0, set()), (60.0, {("m17",)})])
def test_in_a_jam_of_all_the_farthest_of_many_is_chance_and_one_that_stands_alone_is_not(
    rise: float, farthest: float, accused: set[tuple[str, ...]]
) -> None:
    assert {verdict.machines for verdict in told(jammed(rise, farthest))} == accused
