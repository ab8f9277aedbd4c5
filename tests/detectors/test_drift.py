"""Drift: told once, after long enough, for most of the machines; never for a fault, a pause or silence."""

from __future__ import annotations

import numpy as np

from minder.diagnose.detectors.drift import Drift, DriftConfig, DriftMonitor
from minder.model.telemetry import Window

CONFIG = DriftConfig(share=0.5, pace_s=60.0, hold_s=300.0)
RANGES = {"gpu_power_draw_watts": (300.0, 600.0)}
MACHINES = tuple(f"m{index}" for index in range(8))


def feed(monitor: DriftMonitor, start_s: float, seconds: float, values: object, metric: str = "gpu_power_draw_watts") -> list[Drift]:
    found = []
    for time_s in np.arange(start_s, start_s + seconds, 5.0):
        values_TMK = np.broadcast_to(np.asarray(values, dtype=float), (8,)).reshape(1, 8, 1)
        present_TM = np.ones((1, 8), dtype=bool)
        found += monitor.observe(Window(np.array([time_s]), MACHINES, (metric,), values_TMK, present_TM))
    return found


def test_what_stays_in_range_is_no_drift() -> None:
    assert feed(DriftMonitor(RANGES, CONFIG), 0.0, 3600.0, 450.0) == []


def test_new_machines_of_another_kind_are_told_once() -> None:
    monitor = DriftMonitor(RANGES, CONFIG)
    feed(monitor, 0.0, 600.0, 450.0)
    (drift,) = feed(monitor, 600.0, 3600.0, 900.0)
    assert (drift.metric, drift.median, drift.low, drift.high) == ("gpu_power_draw_watts", 900.0, 300.0, 600.0)
    assert 600.0 < drift.since_s < 720.0 and drift.time_s - drift.since_s >= 300.0


def test_it_is_told_again_after_it_had_returned() -> None:
    monitor = DriftMonitor(RANGES, CONFIG)
    assert len(feed(monitor, 0.0, 900.0, 900.0)) == 1
    assert feed(monitor, 900.0, 900.0, 450.0) == []
    assert len(feed(monitor, 1800.0, 900.0, 900.0)) == 1


def test_one_faulty_machine_and_a_short_pause_of_all_are_no_drift() -> None:
    monitor = DriftMonitor(RANGES, CONFIG)
    assert feed(monitor, 0.0, 3600.0, [90.0] + [450.0] * 7) == []
    assert feed(monitor, 3600.0, 240.0, 90.0) == []
    assert feed(monitor, 3840.0, 3600.0, 450.0) == []


def test_silence_and_unknown_metrics_say_nothing() -> None:
    monitor = DriftMonitor(RANGES, CONFIG)
    assert feed(monitor, 0.0, 3600.0, np.nan) == []
    assert feed(monitor, 0.0, 3600.0, 1e9, "cpu_usage_ratio") == []
