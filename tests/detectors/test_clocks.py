"""Clocks that are off, timed against what all machines do together. T rows, M machines, K metrics."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minder.diagnose.detectors.clocks import Activity, Clocks
from minder.diagnose.detectors.outliers import PipelineStages
from minder.diagnose.detectors.peers import Ordered
from minder.diagnose.detectors.presence import RowStatus
from minder.diagnose.detectors.row import Layout, Row
from minder.diagnose.detectors.traits import TraitTable
from tests.detectors.one_stage import one_stage

METRICS = ("rdma_throughput_bytes_per_second", "nvlink_bandwidth_bytes_per_second")
MACHINES = tuple(f"node-{m}" for m in range(6))


class Site:
    """Clocks of a job of one stage."""

    def __init__(self) -> None:
        self.clocks, self._activity = one_stage(Clocks, MACHINES, METRICS), Activity()
        self._layout = Layout(MACHINES, TraitTable(METRICS), PipelineStages.of([None] * len(MACHINES)), 3.0, 0.4)
        self.clocks.follow(self._layout)

    def feed(self, rows_TKM: np.ndarray, gap_s: float = 1.0) -> np.ndarray:
        """(T, K, M): distances at the offsets."""
        found, every_M = [], np.ones(len(MACHINES), dtype=bool)
        for t, scaled_KM in enumerate(rows_TKM):
            row, ordered = Row(self._layout, gap_s * t, scaled_KM, every_M), Ordered(scaled_KM)
            heard = (None, every_M, gap_s, gap_s, 0.0 * every_M, gap_s * every_M)
            row.status = RowStatus(*heard, ~every_M, False, 0.0 * scaled_KM, ~every_M, ~every_M)
            row.scaled_KM, row.center_K, row.distances = scaled_KM, ordered.median_K(), {"all": ordered.distance_KM()}
            self._activity.update(row)
            self.clocks.update(row)
            found.append(row.distances["all"])
        return np.stack(found)

    def off_M(self) -> list[float]:
        return [float(value) for value in self.clocks.state.off_M]


def checkpoints(late_rows: int, rows: int = 700) -> np.ndarray:
    """Every 150 rows all machines rest for 20; machine 2 does so `late_rows` later, by its own account."""
    rng = np.random.default_rng(3)
    rest_T = np.where(np.arange(rows) % 150 > 129, -3.0, 0.0)
    level_TKM = np.repeat(np.repeat(rest_T[:, None, None], len(METRICS), axis=1), len(MACHINES), axis=2)
    level_TKM[:, :, 2] = np.roll(rest_T, late_rows)[:, None]
    return (level_TKM + rng.normal(0.0, 0.05, level_TKM.shape)).astype(np.float32)


@pytest.mark.parametrize("late_rows", [-9, 7, 12])
def test_a_clock_that_is_off_is_timed_and_no_longer_odd(late_rows: int) -> None:
    site = Site()
    distance_TKM = site.feed(checkpoints(late_rows))
    assert site.off_M() == [0.0, 0.0, float(late_rows), 0.0, 0.0, 0.0]
    assert np.nanmax(np.abs(distance_TKM[400:, :, 2])) < 0.5
    assert np.nanmax(np.abs(distance_TKM[:200, :, 2])) > 2.0


def test_clocks_that_are_right_are_left_alone() -> None:
    site = Site()
    site.feed(checkpoints(0))
    assert site.off_M() == [0.0] * 6


def test_who_stops_before_the_others_and_stays_down_has_not_got_a_wrong_clock() -> None:
    rows_TKM = checkpoints(0)
    rows_TKM[490:, :, 2] -= 3.0
    rows_TKM[500:, :, :2] -= 3.0
    rows_TKM[500:, :, 3:] -= 3.0
    site = Site()
    site.feed(rows_TKM)
    assert site.off_M() == [0.0] * 6


def test_a_fault_of_a_machine_whose_clock_is_off_stays_odd() -> None:
    rows_TKM = checkpoints(7)
    rows_TKM[550:, :, 2] -= 2.0
    distance_TKM = Site().feed(rows_TKM)
    assert np.median(distance_TKM[560:, 0, 2]) == pytest.approx(-2.0, abs=0.2)


def test_what_is_known_of_clocks_is_saved_and_restored() -> None:
    rows_TKM = checkpoints(-9)
    site, other = Site(), Site()
    site.feed(rows_TKM[:500])
    other.clocks.state.load(json.loads(json.dumps(site.clocks.state.record())), len(METRICS), len(MACHINES))
    np.testing.assert_array_equal(site.feed(rows_TKM[500:]), other.feed(rows_TKM[500:]))
    assert site.off_M() == other.off_M() != [0.0] * 6
