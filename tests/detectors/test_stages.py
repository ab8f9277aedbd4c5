"""The default detector is a list of stages: what each remembers follows its machines, is saved, and any optional one may be left out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
import pytest

from minder.diagnose.detectors.default import OPTIONAL, STAGES, DefaultDetector
from minder.diagnose.detectors.stage import Stage
from minder.diagnose.detectors.state import Moves, State, per
from minder.ingest.windows import rows_of
from minder.model.telemetry import Window
from tests.detectors.small_job import AT_REST, METRICS, WORKS, healthy

NAMES = tuple(f"m{m:02d}" for m in range(8))


@dataclass(slots=True)
class _Part(State):
    inner_K: np.ndarray = per("K", np.nan)


@dataclass(slots=True)
class _Whole(State):
    far_KM: np.ndarray = per("KM", -1.0)
    since_M: np.ndarray = per("M", np.inf)
    at: float = 2.0
    past: dict[str, np.ndarray] = field(default_factory=dict)
    part: _Part = field(default_factory=_Part)


def whole() -> _Whole:
    state = _Whole()
    state.follow(Moves.between(((), ("x", "y")), ((), ("p", "q"))))
    state.far_KM = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    state.since_M, state.part.inner_K, state.at = np.array([5.0, np.inf]), np.array([6.0, np.nan]), 7.0
    state.past = {"x": np.array([[[1.0, np.nan]]], dtype=np.float32)}
    return state


def test_what_is_remembered_follows_machines_and_metrics_by_name() -> None:
    state = whole()
    state.follow(Moves.between((("x", "y"), ("y", "z")), (("p", "q"), ("q", "p", "r"))))
    assert state.far_KM.tolist() == [[4.0, -1.0], [2.0, -1.0], [-1.0, -1.0]]
    assert state.since_M.tolist() == [np.inf, np.inf]
    np.testing.assert_array_equal(state.part.inner_K, [np.nan, 6.0, np.nan])


def test_what_is_remembered_is_written_as_json_and_read_again() -> None:
    state, other = whole(), _Whole()
    other.load(json.loads(json.dumps(state.record(), allow_nan=False)), 2, 2)
    for name in ("far_KM", "since_M"):
        np.testing.assert_array_equal(getattr(other, name), getattr(state, name))
        assert getattr(other, name).dtype == getattr(state, name).dtype
    np.testing.assert_array_equal(other.part.inner_K, state.part.inner_K)
    np.testing.assert_array_equal(other.past["x"], state.past["x"])
    assert other.at == 7.0


def test_what_is_named_is_forgotten_and_nothing_else() -> None:
    state = whole()
    state.forget("since_M", "past")
    assert state.since_M.tolist() == [np.inf, np.inf] and state.past == {} and state.at == 7.0
    state.forget()
    assert state.at == 2.0 and np.isnan(state.part.inner_K).all()


def stopped(detector: DefaultDetector) -> list[float]:
    """Share of the threshold of m02, whose work all but ends as everybody's does, row by row; it went first, by half a minute."""
    values_TMK = healthy(120, seed=5)
    values_TMK[70:, 2, WORKS] *= AT_REST
    values_TMK[76:, :, WORKS[2:]] *= 0.02
    window = Window(1.7e9 + 5.0 * np.arange(120), NAMES, METRICS, values_TMK, np.ones((120, 8), dtype=bool))
    found = []
    for row in rows_of(window):
        scores = detector.score(row)[0]
        assert np.isfinite(scores.score_M).all()
        found.append(float(scores.score_M[2]) / scores.threshold)
        detector.learn(row, frozenset())
    return found


@pytest.mark.parametrize(
    "left_out",
    [kind if place % 5 == 0 else pytest.param(kind, marks=pytest.mark.lab) for place, kind in enumerate(OPTIONAL)],
    ids=[kind.__name__ for kind in OPTIONAL],
)
def test_an_optional_stage_may_be_left_out(left_out: type[Stage]) -> None:
    found = stopped(DefaultDetector(without=(left_out,)))
    assert max(found[:70]) < 1.0 <= max(found[70:])


def test_every_optional_stage_is_one_of_the_stages() -> None:
    assert set(OPTIONAL) < set(STAGES) and len(set(STAGES)) == len(STAGES)


@pytest.mark.parametrize(
    "state", [{"detector": "default", "version": 2, "machines": ["m00"], "metrics": [], "arrays": {}}, {}], ids=["older", "empty"]
)
def test_a_state_of_another_version_is_a_fresh_start(state: dict[str, object]) -> None:
    detector, fresh = DefaultDetector(), DefaultDetector()
    stopped(detector)
    detector.load(state)
    assert stopped(detector) == stopped(fresh)
