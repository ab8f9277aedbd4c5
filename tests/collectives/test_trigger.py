"""When to look closer: failure, straggler, or the new normal."""

from __future__ import annotations

import math

import pytest

from minder.edge.signals.completions import Completion, Normal, check_window

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


def test_what_ports_measured_stands_for_sizes_that_are_not_known() -> None:
    steps = every(1.0, 0)
    assert check_window(steps, 20.0, True, NORMAL, throughput_bytes_per_s=400.0) == ("straggler", NORMAL)
    assert check_window(steps, 20.0, True, NORMAL, throughput_bytes_per_s=700.0) == (None, Normal(700.0, 1.0))


def test_a_throughput_that_is_not_known_neither_alarms_nor_is_learned() -> None:
    assert check_window(every(1.0, 0), 20.0, True, NORMAL, throughput_bytes_per_s=math.nan) == (None, NORMAL)
    first = check_window(every(1.0, 0), 20.0, True, None, throughput_bytes_per_s=math.nan)[1]
    assert first is not None and math.isnan(first.throughput_bytes_per_s)
    assert check_window(every(1.0, 0), 20.0, True, first, throughput_bytes_per_s=5.0) == (None, Normal(5.0, 1.0))
