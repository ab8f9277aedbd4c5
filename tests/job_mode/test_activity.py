"""What of telemetry shows that a job gets on, and what does not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from minder.diagnose.job_mode.activity import Activity
from minder.diagnose.job_mode.thresholds import THRESHOLDS
from minder.model.telemetry import Window

TCP, IO, LOG, MEMORY = "job_tcp_bytes_per_second", "job_io_bytes_per_second", "job_log_bytes_per_second", "job_memory_bytes"
MACHINES = ("m0", "m1")
Values = Mapping[str, float]


def window(time_s: float, told: Mapping[str, Values]) -> Window:
    metrics = tuple(dict.fromkeys(name for values in told.values() for name in values)) or (TCP,)
    values_TMK = np.array([[[told.get(machine, {}).get(name, np.nan) for name in metrics] for machine in MACHINES]])
    return Window(np.array([time_s]), MACHINES, metrics, values_TMK, np.ones((1, len(MACHINES)), dtype=bool))


def play(tell: Callable[[float], Mapping[str, Values]], end_s: int, every_s: int = 1) -> Activity:
    activity = Activity()
    for time_s in range(0, end_s, every_s):
        activity.update(window(float(time_s), tell(float(time_s))), MACHINES)
    return activity


def both(values: Values) -> Mapping[str, Values]:
    return dict.fromkeys(MACHINES, values)


def until(stop_s: float, before: Values, after: Values) -> Callable[[float], Mapping[str, Values]]:
    return lambda time_s: both(before if time_s < stop_s else after)


@pytest.mark.parametrize(("before", "after"), [
    ({TCP: 1e6}, {TCP: 0.0}),
    ({TCP: 1e6, IO: 1e6}, {TCP: 300.0, IO: 1e4}),  # the store's keys, a monitor beside the script
    ({"nvlink_bandwidth_bytes_per_second": 1e11, "gpu_duty_cycle_ratio": 1.0},
     {"nvlink_bandwidth_bytes_per_second": 1e7, "gpu_duty_cycle_ratio": 1.0}),
    ({"gpu_tensor_activity_ratio": 0.4, "gpu_power_draw_watts": 500.0}, {"gpu_tensor_activity_ratio": 0.0, "gpu_power_draw_watts": 500.0}),
    ({TCP: 1e6, "job_cpu_ratio": 1.0, "job_busy_ratio": 1.0}, {TCP: 0.0, "job_cpu_ratio": 8.0, "job_busy_ratio": 1.0}),
    ({"rdma_throughput_bytes_per_second": 1e10, "tcp_throughput_bytes_per_second": 1e6},
     {"rdma_throughput_bytes_per_second": 0.0, "tcp_throughput_bytes_per_second": 1e6}),  # ssh, scrapes: others' traffic
    ({MEMORY: 5e8, TCP: 1e6}, {MEMORY: 5.001e8, TCP: 0.0}),
])  # fmt: skip
def test_spinning_and_a_trickle_are_no_activity(before: Values, after: Values) -> None:
    activity = play(until(100.0, before, after), 200)
    assert 80.0 < activity.quiet_s(199.0) <= 100.0 and activity.quiet_s(199.0) > activity.limit_s()


@pytest.mark.parametrize("alive", [
    {IO: 5e5}, {LOG: 3.0}, {"gpu_tensor_activity_ratio": 0.3}, {"gpu_memory_bandwidth_ratio": 0.2}, {TCP: 2e5},
])  # fmt: skip
def test_any_activity_of_one_machine_acquits_the_whole_job(alive: Values) -> None:
    usual = {TCP: 1e6, IO: 1e6, LOG: 0.0, "gpu_tensor_activity_ratio": 0.4, "gpu_memory_bandwidth_ratio": 0.3}
    silent = dict.fromkeys(usual, 0.0)
    activity = play(lambda time_s: both(usual) if time_s < 100.0 else {"m0": silent, "m1": {**silent, **alive}}, 800)
    assert activity.quiet_s(799.0) == 0.0


def test_memory_that_grows_is_activity() -> None:
    growing = play(lambda time_s: both({TCP: 1e6 if time_s < 100.0 else 0.0, MEMORY: 1e9 * 1.02 ** max(0.0, time_s - 100.0)}), 200)
    assert growing.quiet_s(199.0) == 0.0


def test_a_monitor_that_writes_a_little_every_ten_seconds_is_none() -> None:
    def tell(time_s: float) -> Mapping[str, Values]:
        burst = 2e5 if time_s % 11 == 0 else 0.0
        return both({TCP: 1e6 if time_s < 100.0 else 0.0, IO: (6e5 if time_s < 100.0 else 0.0) + burst})

    assert play(tell, 200).quiet_s(199.0) > 70.0


def test_a_job_with_long_steps_is_quiet_in_between_and_that_is_learned() -> None:
    """A burst of traffic every two minutes: it survives each pause, so a hang takes twice as long to tell."""
    activity = play(lambda time_s: both({TCP: 1e7 if time_s % 120 < 5 and time_s < 1200 else 0.0}), 1190)
    assert 90.0 < activity.survived_s < 120.0 and activity.limit_s() == 2 * activity.survived_s
    assert activity.quiet_s(1189.0) < activity.limit_s()


def test_scrapes_that_come_every_fifteen_seconds_are_enough() -> None:
    activity = play(until(600.0, {TCP: 1e6}, {TCP: 0.0}), 900, every_s=15)
    assert activity.quiet_s(899.0) > 200.0


def test_no_data_is_neither_quiet_nor_activity() -> None:
    activity = play(lambda time_s: both({TCP: 1e6}) if time_s < 100.0 else {}, 400)
    assert activity.quiet_s(399.0) == 0.0 and not activity.is_known(399.0)


def test_the_floor_is_half_a_minute_and_a_start_does_not_lengthen_it() -> None:
    """Sixty seconds without a sign while it starts: the job has not been at work yet."""
    activity = play(lambda time_s: both({TCP: 1e6 if time_s < 3 or time_s > 63 else 0.0}), 100)
    assert activity.limit_s() == THRESHOLDS.quiet_floor_s == 30.0


def test_stacks_that_moved_lengthen_the_patience() -> None:
    activity = play(until(100.0, {TCP: 1e6}, {TCP: 0.0}), 150)
    quiet_s = activity.quiet_s(149.0)
    activity.survive(149.0)
    assert activity.quiet_s(149.0) == 0.0 and activity.limit_s() == 2 * quiet_s


def test_what_a_declared_phase_holds_up_is_not_learned() -> None:
    activity = Activity()
    for time_s in itertools.chain(range(100), range(100, 400)):
        activity.update(window(float(time_s), both({TCP: 1e6 if time_s < 100 else 0.0})), MACHINES)
        if 100 <= time_s < 395:
            activity.excuse()
    activity.update(window(400.0, both({TCP: 1e6})), MACHINES)
    assert activity.limit_s() == THRESHOLDS.quiet_floor_s


def test_standbys_that_prepare_themselves_are_not_the_job() -> None:
    activity = Activity()
    for time_s in range(200):
        told = {"m0": {TCP: 1e6 if time_s < 100 else 0.0}, "m1": {TCP: 0.0, IO: 1e7}}
        activity.update(window(float(time_s), told), ("m0",))
    assert activity.quiet_s(199.0) > 80.0
