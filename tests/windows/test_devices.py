"""Devices to machine."""

from __future__ import annotations

import numpy as np

from minder.ingest.windows.devices import reduce_devices

NAN = np.nan


def test_the_mean_the_farthest_and_the_range():
    values, deviating, low, high = reduce_devices(np.array([NAN]), np.array([[10.0, 10.0, NAN, 40.0]]))
    assert (values[0], deviating[0], low[0], high[0]) == (20.0, 3, 10.0, 40.0)


def test_a_machine_wide_value_comes_before_the_mean():
    values, *_ = reduce_devices(np.array([7.0]), np.array([[10.0, 20.0]]))
    assert values[0] == 7.0


def test_nobody_deviates_alone_or_among_equals():
    _, deviating, *_ = reduce_devices(np.full(3, NAN), np.array([[10.0, NAN], [10.0, 10.0], [NAN, NAN]]))
    assert deviating.tolist() == [-1, -1, -1]


def test_no_device_is_no_data():
    values, _, low, high = reduce_devices(np.array([NAN]), np.array([[NAN, NAN]]))
    assert np.isnan([values[0], low[0], high[0]]).all()
