"""When to look closer: failure, straggler, or the new normal."""

from __future__ import annotations

import pytest

from minder.collectives.trigger import Completion, Normal, check_window, port_throughput
from minder.types import Sample

NORMAL = Normal(throughput_bytes_per_s=1000.0, interval_s=1.0)


def every(interval_s: float, size: int, until_s: float = 20.0) -> list[Completion]:
    return [Completion(k * interval_s, size) for k in range(1, int(until_s / interval_s) + 1)]


def test_a_steady_job_sets_its_own_normal() -> None:
    alarm, normal = check_window(every(1.0, 1000), 20.0, True, None)
    assert alarm is None and normal == Normal(1000.0, 1.0)


def test_nothing_completes_while_something_is_in_flight() -> None:
    assert check_window(every(1.0, 1000, 5.0), 20.0, True, NORMAL) == ("failure", NORMAL)


def test_nothing_completes_and_nothing_is_in_flight_is_no_data() -> None:
    assert check_window([], 20.0, False, NORMAL) == (None, NORMAL)


@pytest.mark.parametrize(("interval_s", "size"), [(1.0, 400), (2.5, 2500), (6.0, 9000)])
def test_half_the_throughput_or_twice_the_interval_is_a_straggler(interval_s: float, size: int) -> None:
    assert check_window(every(interval_s, size), 20.0, True, NORMAL) == ("straggler", NORMAL)


def test_a_fifth_less_is_normal_and_becomes_so() -> None:
    alarm, normal = check_window(every(1.0, 800), 20.0, True, NORMAL)
    assert alarm is None and normal is not None and normal.throughput_bytes_per_s == 800.0


def test_ports_of_a_machine_add_up() -> None:
    samples = [
        Sample(15.0 + k, "m0", {"rdma_throughput_bytes_per_second": 100.0 * (port + 1)}, f"mlx5_{port}")
        for k in range(3)
        for port in (0, 1)
    ]
    assert port_throughput([*samples, Sample(1.0, "m1", {"rdma_throughput_bytes_per_second": 5.0})], 20.0) == {"m0": 300.0}
