"""What every detector must do (minder/diagnose/detectors/contract.py), whatever is inside. Add a detector to DETECTORS and it is tested."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from types import ModuleType

import numpy as np
import pytest
from learned_stumps import stumps

from minder.diagnose.detectors.choose import LEARNED, NAMES, choose_detector, choose_learned
from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.detectors.similarity.config import PUBLISHED_METRICS, SimilarityConfig
from minder.diagnose.detectors.similarity.weights import Weights, shapes
from minder.ingest.windows import align_columns
from minder.model.evidence import Scores
from minder.model.telemetry import Window

METRICS = (*PUBLISHED_METRICS, "gpu_sm_activity_ratio", "rdma_throughput_bytes_per_second")
HIGHEST = {"gpu_power_draw_watts": 800.0, "nvlink_bandwidth_bytes_per_second": 4e11, "pfc_tx_packets_per_second": 1e3}


Heard = Callable[[Callable[[], Detector]], list[Scores]]


def any_weights(name: str) -> Weights:
    """Networks as they are before training: what is normal comes from the peers, so every promise but the accuracy must hold."""
    inputs = (PUBLISHED_METRICS,) if name == "reference-int" else tuple((metric,) for metric in METRICS)
    rng = np.random.default_rng(1)
    arrays = {part: rng.uniform(-0.5, 0.5, shape).astype(np.float32) for part, shape in shapes(len(inputs), len(inputs[0]), 4, 8).items()}
    limits = {metric: (0.0, HIGHEST.get(metric, 2e11 if "rdma" in metric else 1.0)) for metric in METRICS}
    return Weights(inputs, METRICS, limits, arrays)


def chosen(name: str) -> Detector:
    return choose_detector(name, any_weights, config=SimilarityConfig(refit_s=20.0) if name in PYOD else None)


REFERENCES = (
    "minder",
    "minder-raw",
    "minder-con",
    "minder-int",
    "minder-manhattan",
    "minder-chebyshev",
    "minder-reconstruction",
    "minder-all",
)
PYOD = ("ecod", "copod", "lof", "knn", "pca", "iforest", "autoencoder")
QUICK = ("minder",)  # the others go through the same code: they are tested before a release
DETECTORS: dict[str, Callable[[], Detector]] = {
    "default": DefaultDetector,
    **{name: partial(choose_learned, name, stumps()) for name in LEARNED},
    **{name: partial(chosen, name) for name in (*REFERENCES, "mahalanobis", *PYOD)},
}


AT_ONCE = "minder-at-once"  # accuses whoever is the candidate of one window, in healthy jobs too: that is what it shows


def test_every_detector_there_is_is_held_to_this() -> None:
    assert set(DETECTORS) == set(NAMES) - {AT_ONCE}


def marked(name: str) -> object:
    return pytest.param(name, marks=[] if name in ("default", "learned", *QUICK) else [pytest.mark.release])


@pytest.fixture(scope="module", params=[marked(name) for name in sorted(DETECTORS)])
def make(request: pytest.FixtureRequest) -> Callable[[], Detector]:
    if request.param in PYOD:
        pytest.importorskip("pyod", reason="needs the extra models")
    return DETECTORS[request.param]


@pytest.fixture(params=[marked(name) for name in sorted(DETECTORS) if name not in PYOD])
def make_steady(request: pytest.FixtureRequest) -> Callable[[], Detector]:
    """PyOD's are left out: fitted to each window anew, they remember nothing, and one odd window interrupts their four minutes."""
    return DETECTORS[request.param]


@pytest.fixture(scope="module")
def sick(generator: ModuleType) -> tuple[Window, str]:
    """A quarter of an hour of six machines, one of which hangs after five and a half minutes; and its name.

    Detectors that ask for four minutes of continuity, after a window has filled with the fault, need the rest.
    """
    columns = generator.generate(
        generator.Recipe(seed=5, fault="hang", machines=6, pipeline=1, interval_s=5.0, duration_s=900, onset_s=330.0)
    )
    return align_columns(columns, 5.0), columns.culprit


@pytest.fixture(scope="module")
def window(sick: tuple[Window, str]) -> Window:
    """The first ten minutes of it."""
    return cut(sick[0], 120)


@pytest.fixture(scope="module")
def heard(sick: tuple[Window, str]) -> Heard:
    """heard(make): what a new detector says of the whole quarter of an hour, row by row, asked once for all tests."""

    @cache
    def ask(make: Callable[[], Detector]) -> list[Scores]:
        return run(make(), sick[0])

    return ask


@pytest.fixture(scope="module")
def whole_TM(make: Callable[[], Detector], heard: Heard, window: Window) -> np.ndarray:
    """What a new detector says of that window, row by row."""
    return scores_TM(heard(make))[: len(window.times_T)]


def rows(window: Window) -> Iterator[Window]:
    for t in range(len(window.times_T)):
        part = slice(t, t + 1)
        yield replace(window, times_T=window.times_T[part], values_TMK=window.values_TMK[part], present_TM=window.present_TM[part])


def run(detector: Detector, window: Window, anomalous: frozenset[str] = frozenset()) -> list[Scores]:
    found = []
    for row in rows(window):
        found += detector.score(row)
        detector.learn(row, anomalous)
    return found


def scores_TM(found: list[Scores]) -> np.ndarray:
    return np.array([item.score_M for item in found])


def cut(window: Window, count: int) -> Window:
    return replace(window, times_T=window.times_T[:count], values_TMK=window.values_TMK[:count], present_TM=window.present_TM[:count])


def test_scores_are_one_per_row_in_order_and_finite(make: Callable[[], Detector], heard: Heard, sick: tuple[Window, str]) -> None:
    window, found = sick[0], heard(make)
    assert [item.time_s for item in found] == window.times_T.tolist()
    assert all(item.machines == window.machines for item in found)
    assert np.isfinite(scores_TM(found)).all()
    assert (scores_TM(found) >= 0).all()


def test_the_sick_machine_scores_highest(make: Callable[[], Detector], heard: Heard, sick: tuple[Window, str]) -> None:
    window, culprit = sick
    highest_M = scores_TM(heard(make)).max(axis=0)
    assert window.machines[int(np.argmax(highest_M))] == culprit
    assert highest_M.max() > 2 * np.sort(highest_M)[-2]


def test_the_sick_machine_passes_the_threshold_with_evidence(
    make_steady: Callable[[], Detector], heard: Heard, sick: tuple[Window, str]
) -> None:
    window, culprit = sick
    highest = max(heard(make_steady), key=lambda item: float(item.score_M.max()))
    assert highest.score_M[window.machines.index(culprit)] >= highest.threshold
    assert highest.evidence[culprit]


def test_cutting_at_a_row_gives_the_same_scores_up_to_it(make: Callable[[], Detector], window: Window, whole_TM: np.ndarray) -> None:
    np.testing.assert_array_equal(scores_TM(run(make(), cut(window, 70))), whole_TM[:70])  # row by row: all that are shorter with it


def test_the_order_of_machines_and_metrics_does_not_matter(make: Callable[[], Detector], window: Window, whole_TM: np.ndarray) -> None:
    order, metric_order = np.array([3, 0, 5, 1, 4, 2]), np.arange(len(window.metrics))[::-1]
    shuffled = replace(
        window,
        machines=tuple(window.machines[m] for m in order),
        metrics=tuple(window.metrics[k] for k in metric_order),
        values_TMK=window.values_TMK[:, order][:, :, metric_order],
        present_TM=window.present_TM[:, order],
    )
    np.testing.assert_allclose(scores_TM(run(make(), shuffled)), whole_TM[:, order], rtol=1e-9, atol=1e-9)


def test_a_detector_loaded_from_json_goes_on_with_the_same_scores(
    make: Callable[[], Detector], window: Window, whole_TM: np.ndarray
) -> None:
    first = make()
    run(first, cut(window, 75))
    second = make()
    second.load(json.loads(json.dumps(first.state(), allow_nan=False)))
    rest = replace(window, times_T=window.times_T[75:], values_TMK=window.values_TMK[75:], present_TM=window.present_TM[75:])
    np.testing.assert_allclose(scores_TM(run(second, rest)), whole_TM[75:], rtol=1e-12, atol=1e-12)


def test_what_was_called_anomalous_is_not_learned(make_steady: Callable[[], Detector]) -> None:
    """A machine works at half for an hour and a half: it is still odd at the end if it was called so, however slowly others adapt."""
    rng = np.random.default_rng(4)
    metrics = ("gpu_power_draw_watts", "gpu_sm_activity_ratio", "rdma_throughput_bytes_per_second")
    values_TMK = np.array([500.0, 0.6, 1e11]) * np.exp(rng.normal(0, 0.02, (350, 5, 3)))
    values_TMK[80:, 0] *= 0.3
    times_T = 1.7e9 + 20.0 * np.arange(350)
    window = Window(times_T, tuple("abcde"), metrics, values_TMK, np.ones((350, 5), dtype=bool))
    detector = make_steady()
    found: list[Scores] = []
    for row in rows(window):
        found += detector.score(row)
        detector.learn(row, frozenset("a") if row.times_T[0] >= times_T[80] else frozenset())
    assert found[79].score_M[0] < found[79].threshold
    assert found[-1].score_M[0] >= found[-1].threshold


@pytest.mark.parametrize("machines", [1, 2])
def test_one_or_two_machines_give_scores_and_no_accusation(make: Callable[[], Detector], window: Window, machines: int) -> None:
    few = replace(
        cut(window, 60),
        machines=window.machines[:machines],
        values_TMK=window.values_TMK[:60, :machines],
        present_TM=window.present_TM[:60, :machines],
    )
    found = run(make(), few)
    assert scores_TM(found).max() < found[0].threshold


@pytest.mark.parametrize("value", [0.0, 0.5, np.nan, np.inf, -np.inf, -1.0, 1e300])
def test_constant_missing_and_infinite_series_accuse_nobody(make: Callable[[], Detector], window: Window, value: float) -> None:
    short = cut(window, 80)
    broken = replace(short, values_TMK=np.full_like(short.values_TMK, value))
    found = run(make(), broken)
    assert np.isfinite(scores_TM(found)).all()
    assert scores_TM(found).max() < found[0].threshold


def test_gaps_and_empty_windows_are_no_data(make: Callable[[], Detector], window: Window) -> None:
    rng = np.random.default_rng(0)
    holed = window.values_TMK.copy()
    holed[rng.random(holed.shape) < 0.3] = np.nan
    assert np.isfinite(scores_TM(run(make(), replace(window, values_TMK=holed)))).all()
    nothing = replace(
        window, metrics=(), values_TMK=np.zeros((len(window.times_T), 6, 0)), present_TM=np.zeros((len(window.times_T), 6), bool)
    )
    assert scores_TM(run(make(), nothing)).max() == 0.0


def test_machines_and_metrics_may_come_and_go(make: Callable[[], Detector], window: Window) -> None:
    detector = make()
    run(detector, cut(window, 40))
    fewer = replace(
        window, machines=window.machines[1:], metrics=window.metrics[:5], values_TMK=window.values_TMK[40:60, 1:, :5],
        present_TM=window.present_TM[40:60, 1:], times_T=window.times_T[40:60],
    )  # fmt: skip
    found = run(detector, fewer)
    assert found[-1].machines == window.machines[1:]
    again = replace(window, times_T=window.times_T[60:62], values_TMK=window.values_TMK[60:62], present_TM=window.present_TM[60:62])
    assert np.isfinite(scores_TM(run(detector, again))).all()
