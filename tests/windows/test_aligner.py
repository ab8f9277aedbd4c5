"""Streaming alignment: what a caller that pushes samples and pops rows relies on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from minder.ingest.windows import Aligner, align_columns
from minder.model.telemetry import Sample

CPU = "cpu_usage_ratio"
POWER = "gpu_power_draw_watts"


def sample(time_s, machine="a", device=None, **values):
    return Sample(time_s, machine, values or {CPU: 0.5}, device)


def rows(aligner, now_s):
    window = aligner.pop(now_s)
    return [] if window is None else [round(float(t), 6) for t in window.times_T]


def test_machines_with_different_offsets_share_rows():
    aligner = Aligner(["a", "b"], 1.0, [CPU], lateness_s=0.0)
    for second in range(5):
        aligner.push([sample(100.1 + second, "a", **{CPU: 0.1 * second}), sample(100.9 + second, "b", **{CPU: 0.2})])
    window = aligner.pop(105.0)
    assert window.times_T.tolist() == [101.0, 102.0, 103.0, 104.0, 105.0]
    np.testing.assert_allclose(window.values_TMK[:, 0, 0], [0.0, 0.1, 0.2, 0.3, 0.4])
    assert window.present_TM.all()


def test_a_silent_machine_has_no_data_and_comes_back():
    aligner = Aligner(["a"], 1.0, [CPU], lateness_s=0.0)
    aligner.push([sample(100.0), sample(101.0), sample(102.0), sample(110.0)])
    window = aligner.pop(111.0)
    present = dict(zip(window.times_T.tolist(), window.present_TM[:, 0].tolist(), strict=True))
    assert present[103.0] and not any(present[float(t)] for t in range(104, 110)) and present[110.0]
    assert np.isnan(window.values_TMK[~window.present_TM]).all()


def test_every_row_comes_once_and_only_when_it_is_complete():
    aligner = Aligner(["a"], 1.0, [CPU], lateness_s=0.25)
    aligner.push([sample(100.0)])
    assert rows(aligner, 100.2) == []
    assert rows(aligner, 100.3) == [100.0]
    assert rows(aligner, 100.9) == []
    assert rows(aligner, 102.3) == [101.0, 102.0]


def test_a_slow_series_holds_for_its_own_interval_and_no_longer():
    aligner = Aligner(["a"], 1.0, [CPU], lateness_s=0.0)
    for scrape in range(6):
        aligner.push([sample(1000.0 + 15 * scrape, **{CPU: scrape / 10})])
    window = aligner.pop(1120.0)
    values = dict(zip(window.times_T.tolist(), window.values_TMK[:, 0, 0].tolist(), strict=True))
    assert all(values[float(t)] == pytest.approx(0.4) for t in range(1060, 1075))
    assert all(values[float(t)] == pytest.approx(0.5) for t in range(1075, 1091))
    assert all(math.isnan(values[float(t)]) for t in range(1092, 1121))


def test_a_sample_older_than_what_already_stood_is_dropped_and_counted():
    aligner = Aligner(["a"], 1.0, [CPU], lateness_s=0.0)
    aligner.push([sample(100.0), sample(101.0, **{CPU: 0.9})])
    aligner.pop(101.0)
    aligner.push([sample(100.5, **{CPU: 0.1}), sample(101.0, **{CPU: 0.9})])
    assert aligner.losses.late == 2
    assert aligner.pop(102.0).values_TMK[0, 0, 0] == 0.9


def test_samples_may_come_in_any_order_before_their_row():
    aligner = Aligner(["a"], 1.0, [CPU], lateness_s=0.0)
    aligner.push([sample(101.9, **{CPU: 0.3}), sample(100.9, **{CPU: 0.1}), sample(101.4, **{CPU: 0.2})])
    window = aligner.pop(102.0)
    assert window.times_T.tolist() == [101.0, 102.0]
    assert window.values_TMK[:, 0, 0].tolist() == [0.1, 0.3]


def test_the_step_is_learned_where_nobody_names_it():
    aligner = Aligner(["a", "b"], None, [CPU], lateness_s=0.0)
    for scrape in range(8):
        aligner.push([sample(1000.0 + 5.02 * scrape, "a"), sample(1002.0 + 5.02 * scrape, "b")])
    assert aligner.interval_s == 5.0
    assert rows(aligner, 1020.0) == [1000.0, 1005.0, 1010.0, 1015.0, 1020.0]


def test_machines_that_join_and_leave():
    aligner = Aligner(["a", "b"], 1.0, [CPU], lateness_s=0.0)
    aligner.push([sample(100.0, "a"), sample(100.0, "b"), sample(100.0, "c")])
    assert aligner.losses.foreign == 1
    aligner.pop(100.0)
    aligner.set_machines(["a", "c"])
    aligner.push([sample(101.0, "a"), sample(101.0, "b"), sample(101.0, "c", **{CPU: 0.7})])
    window = aligner.pop(101.0)
    assert window.machines == ("a", "c")
    assert window.values_TMK[0, :, 0].tolist() == [0.5, 0.7]


def test_without_a_list_everybody_who_speaks_is_watched():
    aligner = Aligner(None, 1.0, [CPU], lateness_s=0.0)
    aligner.push([sample(100.0, "x"), sample(100.0, "y")])
    assert aligner.pop(100.0).machines == ("x", "y")


def test_one_sick_device_does_not_drown():
    aligner = Aligner(["a"], 1.0, [POWER], lateness_s=0.0)
    aligner.push([sample(100.0, device=f"gpu{n}", **{POWER: 100.0 if n == 5 else 500.0}) for n in range(8)])
    window = aligner.pop(100.0)
    assert window.values_TMK[0, 0, 0] == pytest.approx(450.0)
    assert window.devices[window.device_TMK[0, 0, 0]] == "gpu5"
    assert (window.low_TMK[0, 0, 0], window.high_TMK[0, 0, 0]) == (100.0, 500.0)


def test_a_metric_in_the_wrong_unit_is_dropped_with_a_note():
    aligner = Aligner(["a"], 1.0, [CPU, POWER], lateness_s=0.0)
    aligner.push([sample(100.0 + n, **{CPU: 87.0, POWER: 400.0}) for n in range(10)])
    window = aligner.pop(110.0)
    assert np.isnan(window.values_TMK[:, 0, 0]).all() and not np.isnan(window.values_TMK[:, 0, 1]).any()
    (note,) = aligner.notes()
    assert "cpu_usage_ratio" in note and "87" in note
    assert aligner.notes() == ()


def test_a_rare_impossible_value_is_a_gap_and_drops_nothing():
    aligner = Aligner(["a"], 1.0, [CPU], lateness_s=0.0)
    aligner.push([sample(1000.0 + n, **{CPU: 9.0 if n in (50, 51, 52) else 0.5}) for n in range(60)])
    for n in range(60, 400):
        aligner.push([sample(1000.0 + n)])
    values = aligner.pop(1399.0).values_TMK[:, 0, 0]
    assert aligner.losses.out_of_range == 3 and aligner.notes() == ()
    assert values[-1] == 0.5


def test_a_clock_that_is_seconds_off_is_moved_by_arrival():
    aligner = Aligner(["a", "b", "c", "d"], 1.0, [CPU], lateness_s=0.0)
    for second in range(30):
        now_s = 1000.0 + second
        batch = [sample(now_s - 0.2, name) for name in "abc"] + [sample(now_s - 40.2, "d", **{CPU: second / 100})]
        aligner.push(batch, arrived_s=now_s)
        window = aligner.pop(now_s)
    assert window.present_TM[-1].all()
    assert window.values_TMK[-1, 3, 0] == pytest.approx(0.29)
    assert "clock of d is 40.0 s behind" in " ".join(aligner.notes())


def test_a_pause_of_the_caller_does_not_make_up_hours_of_rows():
    aligner = Aligner(["a"], 1.0, [CPU], lateness_s=0.0)
    aligner.push([sample(1000.0)])
    aligner.pop(1000.0)
    window = aligner.pop(9000.0)
    assert len(window.times_T) == 120 and window.times_T[-1] == 9000.0
    assert aligner.losses.skipped_rows == 7880


@dataclass
class Columns:
    times_N: np.ndarray
    machine_N: np.ndarray
    device_N: np.ndarray
    values_NK: np.ndarray
    machines: tuple[str, ...]
    devices: tuple[str, ...]
    metrics: tuple[str, ...]


def as_samples(columns):
    samples = []
    for n in np.argsort(columns.times_N, kind="stable"):
        values = {name: float(v) for name, v in zip(columns.metrics, columns.values_NK[n], strict=True) if not np.isnan(v)}
        device = columns.devices[columns.device_N[n]] if columns.device_N[n] >= 0 else None
        samples.append(Sample(float(columns.times_N[n]), columns.machines[columns.machine_N[n]], values, device))
    return samples


@st.composite
def recorded(draw):
    """Machines with their own intervals, offsets, jitter, outages and stuck stretches, some with devices, rows in any order."""
    step_s = draw(st.sampled_from([0.5, 1.0, 5.0]))
    devices = draw(st.sampled_from([(), ("gpu0", "gpu1", "gpu2")]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    times, machine, device, values = [], [], [], []
    for m in range(3):
        interval_s = step_s * draw(st.sampled_from([1, 1, 3, 15]))
        count = draw(st.integers(1, 70))
        own = 1.7e9 + rng.uniform(0, interval_s) + np.arange(count) * interval_s + rng.uniform(-0.3, 0.3, count) * step_s
        own = np.round(own[rng.random(count) > draw(st.sampled_from([0.0, 0.1, 0.5]))], 3)
        for slot in range(-1, len(devices)):
            value = rng.uniform(0.1, 0.9, (len(own), 2))
            value[draw(st.integers(0, 60)) :, 0] = 0.25  # a sensor that sticks
            value[rng.random(value.shape) < 0.1] = np.nan
            times.extend(own), machine.extend([m] * len(own)), device.extend([slot] * len(own)), values.extend(value)
    order = rng.permutation(len(times))
    shape = (len(times), 2)
    return step_s, Columns(
        np.array(times)[order],
        np.array(machine, dtype=int)[order],
        np.array(device, dtype=int)[order],
        np.array(values).reshape(shape)[order],
        ("a", "b", "c"),
        devices,
        (CPU, "step_seconds"),
    )


@settings(max_examples=30, deadline=None)
@given(recorded(), st.integers(1, 20))
def test_streaming_gives_the_values_of_the_whole_recording(case, rows_per_pop):
    step_s, columns = case
    if len(columns.times_N) == 0:
        return
    gaps_N = np.diff(np.sort(columns.times_N))
    assume(gaps_N.max(initial=0.0) < 500.0)  # a recording leaves out rows of which nobody speaks for minutes; a stream waits through them
    whole = align_columns(columns, step_s)
    aligner = Aligner(columns.machines, step_s, columns.metrics, lateness_s=0.0)
    samples = as_samples(columns)
    windows, now_s, end_s = [], samples[0].time_s, samples[-1].time_s
    while now_s < end_s:
        now_s = min(now_s + rows_per_pop * step_s, end_s)
        due = [item for item in samples if item.time_s <= now_s]
        samples = samples[len(due) :]
        aligner.push(due)
        window = aligner.pop(now_s)
        if window is not None:
            windows.append(window)
    aligner.push(samples)
    window = aligner.pop(end_s)
    windows.extend([window] if window is not None else [])
    if not windows:
        assert len(whole.times_T) == 0
        return
    np.testing.assert_array_equal(np.concatenate([w.times_T for w in windows]), whole.times_T)
    np.testing.assert_array_equal(np.concatenate([w.present_TM for w in windows]), whole.present_TM)
    np.testing.assert_allclose(np.concatenate([w.values_TMK for w in windows]), whole.values_TMK, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(recorded(), st.floats(0.1, 0.9))
def test_a_row_depends_on_nothing_later(case, share):
    step_s, columns = case
    if len(columns.times_N) == 0:
        return
    cut_s = columns.times_N.min() + share * np.ptp(columns.times_N)
    keep = columns.times_N <= cut_s
    cut = Columns(
        columns.times_N[keep], columns.machine_N[keep], columns.device_N[keep], columns.values_NK[keep],
        columns.machines, columns.devices, columns.metrics,
    )  # fmt: skip
    whole, part = align_columns(columns, step_s), align_columns(cut, step_s)
    count = len(part.times_T)
    np.testing.assert_array_equal(part.times_T, whole.times_T[:count])
    np.testing.assert_array_equal(part.values_TMK, whole.values_TMK[:count])
    np.testing.assert_array_equal(part.present_TM, whole.present_TM[:count])
