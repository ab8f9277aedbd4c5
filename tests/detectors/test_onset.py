"""Who stood with its peers while they had long been standing, and only then left them, did not stop them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minder.diagnose.detectors.onset import Onset
from minder.diagnose.detectors.outliers import Outliers
from minder.diagnose.detectors.phases import Phase
from minder.diagnose.detectors.presence import RowStatus
from tests.detectors.one_stage import one_stage

NOW_S = 500.0


def turned(
    slow: float = 0.0, since_move_s: float = 80.0, stood_s: float = 80.0, heard_s: float = 5.0, idle: bool = False, since: float = np.nan
) -> bool:
    """One of two machines is odd in this row: its newest sample of one metric is 0.8 below its peers'. Scrapes of 5 s."""
    onset = one_stage(Onset, ["a", "b"], ["cpu_usage_ratio"])
    onset.baseline.all_slow.smooth_KM = np.array([[0.0, slow]], dtype=np.float32)
    onset.score.since_M = np.array([np.nan, since])
    one = np.ones((1, 1))
    outliers = replace(Outliers.none(1), machines_X=np.array([1]), counted_KX=one, newest_KX=-0.8 * one)
    phase = Phase(False, idle, 0.0, False, 1.0, NOW_S - stood_s, np.array([-1.0]), stalled=True)
    phase.since_move_s, phase.stands_since_s = since_move_s, NOW_S - stood_s
    nobody_M = np.zeros(2, dtype=bool)
    heard = (None, ~nobody_M, 5.0, 5.0, np.zeros(2), np.array([5.0, heard_s]))
    status = RowStatus(*heard, nobody_M, False, np.zeros((1, 2)), nobody_M, nobody_M)
    return bool(onset.turned_odd(outliers, phase, status, NOW_S)[0])


def test_a_plain_fall_among_peers_that_have_long_been_standing_came_afterwards() -> None:
    assert turned()


@pytest.mark.parametrize(
    "otherwise",
    [
        {"slow": -0.5},  # odd for longer, but weakly
        {"since_move_s": 20.0},  # the job moved a moment ago: a link that flaps
        {"stood_s": 5.0},  # it has only just come to stand
        {"stood_s": np.nan},
        {"heard_s": 60.0},  # may have been odd all the while
        {"idle": True},
    ],
)
def test_what_may_have_begun_with_the_standstill_or_before_did_not(otherwise: dict[str, float]) -> None:
    assert not turned(**otherwise)  # type: ignore[arg-type]


def test_who_is_odd_already_is_not_dated_anew() -> None:
    assert not turned(since=430.0)
