"""The published baseline: Mahalanobis distances between machines' window features. Its features are not published; ours are means and
standard deviations. The covariance is shrunk to its diagonal, since features outnumber machines in small jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.similarity.distances import summed_distances
from minder.diagnose.detectors.similarity.features import due_features
from minder.diagnose.detectors.similarity.recent import Stretch

__all__ = ["MahalanobisScorer", "whiten"]

_SHRUNK = 0.2  # of the covariance is its diagonal, however many machines there are


class MahalanobisScorer:
    """WindowScorer over all metrics at once."""

    name = "mahalanobis"

    def __init__(self, limits: Mapping[str, tuple[float, float]], order: Sequence[str] = ()) -> None:
        self.limits: Mapping[str, tuple[float, float]] = dict(limits)
        self.order = tuple(order)

    def lanes(self, metrics: Sequence[str]) -> tuple[str, ...]:
        return (self.name,) if metrics else ()

    def score(self, stretch: Stretch, config: SimilarityConfig) -> np.ndarray:
        known_TM = np.asarray(stretch.known_KTM.any(axis=0))
        sums_TM = np.full(known_TM.shape, np.nan)
        for t, features_MF in due_features(stretch, config):
            sums_TM[t] = summed_distances(whiten(features_MF)[None], known_TM[t : t + 1], "euclidean")[0]
        return sums_TM[None]


def whiten(features_MF: np.ndarray) -> np.ndarray:
    """Coordinates whose Euclidean distances are Mahalanobis distances under the shrunk covariance."""
    machines, features = features_MF.shape
    covariance_FF = features_MF.T @ features_MF / max(machines - 1, 1)
    share = max(_SHRUNK, min(1.0, features / max(machines, 1)))
    shrunk_FF = (1.0 - share) * covariance_FF + share * np.eye(features)
    return np.asarray(np.linalg.solve(np.linalg.cholesky(shrunk_FF), features_MF.T).T)
