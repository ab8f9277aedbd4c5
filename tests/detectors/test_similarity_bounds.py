"""Where bounds tell who is a candidate, the exact distances say the same; the detector gives the same scores with them and without."""

from __future__ import annotations

import numpy as np
import pytest

from minder.diagnose.detectors.similarity import vae_scorer
from minder.diagnose.detectors.similarity.bounds import _bounds, near_sums
from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.similarity.continuity import candidates
from minder.diagnose.detectors.similarity.detector import SimilarityDetector
from minder.diagnose.detectors.similarity.distances import normal_scores, summed_distances
from minder.diagnose.detectors.similarity.vae_scorer import VaeScorer
from minder.diagnose.detectors.similarity.weights import Weights, shapes
from minder.model.evidence import Scores
from minder.model.telemetry import Window

MACHINES = 300
SPREADS = {"a line": (1.0, 0.05, 0.02, 0.01), "a sheet": (1.0, 0.5, 0.02, 0.01), "a ball": (1.0, 1.0, 1.0, 1.0), "a point": (0.0,) * 4}


def everybody(windows: int, machines: int = MACHINES) -> np.ndarray:
    return np.ones((windows, machines), dtype=bool)


def candidates_of(sums_TM: np.ndarray, config: SimilarityConfig) -> list[list[bool]]:
    return list(candidates(normal_scores(sums_TM, config.least_spread), everybody(*sums_TM.shape), config).tolist())


@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("outlier", [0.0, 2.0, 4.0, 30.0])
@pytest.mark.parametrize("middle", [0.0, 5.0])
def test_sums_that_are_told_have_the_candidates_of_the_exact_ones(name: str, outlier: float, middle: float) -> None:
    rng, config = np.random.default_rng(1), SimilarityConfig()
    vectors_TMD = (middle + rng.standard_normal((12, MACHINES, 4)) * SPREADS[name]).astype(np.float32)
    vectors_TMD[:, 7, 0] += outlier
    vectors_TMD[4:8, 8:30] = vectors_TMD[4:8, :1]  # many that are the same
    vectors_TMD[8:, 8, 0] += outlier  # another as far off
    exact_TM = summed_distances(vectors_TMD, everybody(12))
    told_T, near_TM = near_sums(vectors_TMD, everybody(12), config)
    assert candidates_of(near_TM[told_T], config) == candidates_of(exact_TM[told_T], config)
    if name in ("a line", "a point") and outlier in (0.0, 30.0):
        assert told_T[:4].mean() >= 0.5  # where there is little doubt, bounds are of use
    two = SimilarityConfig(top_k=2)
    told_T, near_TM = near_sums(vectors_TMD, everybody(12), two)
    assert candidates_of(near_TM[told_T], two) == candidates_of(exact_TM[told_T], two)


@pytest.mark.parametrize("name", SPREADS)
def test_exact_sums_lie_between_the_bounds(name: str) -> None:
    centered_MD = (np.random.default_rng(3).standard_normal((MACHINES, 4)) * SPREADS[name]).astype(np.float32)
    centered_MD -= centered_MD.mean(axis=0)
    lower_M, upper_M = _bounds(centered_MD)
    apart_MMD = centered_MD[:, None].astype(np.float64) - centered_MD[None]
    exact_M = np.sqrt((apart_MMD**2).sum(axis=2)).sum(axis=1)
    assert (lower_M <= exact_M).all() and (exact_M <= upper_M).all()


def test_what_is_not_known_of_everybody_or_has_few_machines_or_another_distance_is_not_told() -> None:
    vectors_TMD, known_TM = np.zeros((2, MACHINES, 4), dtype=np.float32), everybody(2)
    known_TM[1, 5] = False
    assert near_sums(vectors_TMD, known_TM, SimilarityConfig())[0].tolist() == [True, False]
    assert not near_sums(vectors_TMD[:, :50], known_TM[:, :50], SimilarityConfig())[0].any()
    assert not near_sums(vectors_TMD, known_TM, SimilarityConfig(distance="manhattan"))[0].any()


def test_the_detector_says_the_same_as_with_every_pair_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, rows, metrics = np.random.default_rng(2), 40, ("a", "b")
    arrays = {name: rng.uniform(-0.6, 0.6, shape).astype(np.float32) for name, shape in shapes(2, 1, 4, 8).items()}
    weights = Weights((("a",), ("b",)), metrics, {"a": (0.0, 1.0), "b": (0.0, 1.0)}, arrays)
    values_TMK = rng.uniform(0.4, 0.6, (rows, MACHINES, 2))
    values_TMK[12:, 17, 1] = 3.0
    names = tuple(f"m{m}" for m in range(MACHINES))
    window = Window(np.arange(rows, dtype=float), names, metrics, values_TMK, np.ones((rows, MACHINES), dtype=bool))
    told: list[np.ndarray] = []

    def noted(vectors_TMD: np.ndarray, known_TM: np.ndarray, config: SimilarityConfig) -> tuple[np.ndarray, np.ndarray]:
        told_T, sums_TM = near_sums(vectors_TMD, known_TM, config)
        told.append(told_T)
        return told_T, sums_TM

    def none(vectors_TMD: np.ndarray, known_TM: np.ndarray, config: SimilarityConfig) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(known_TM), dtype=bool), np.zeros(known_TM.shape)

    def scored() -> list[Scores]:
        pytest.importorskip("torch")
        return SimilarityDetector(VaeScorer(weights), SimilarityConfig(continuity_s=10.0)).score(window)

    monkeypatch.setattr(vae_scorer, "near_sums", noted)
    quick = scored()
    monkeypatch.setattr(vae_scorer, "near_sums", none)
    for first, second in zip(quick, scored(), strict=True):
        np.testing.assert_array_equal(first.score_M, second.score_M)
        assert (first.evidence, first.since_s) == (second.evidence, second.since_s)
    assert np.concatenate(told).sum() > 0.2 * 2 * rows
    assert (quick[-1].score_M >= quick[-1].threshold).nonzero()[0].tolist() == [17]
