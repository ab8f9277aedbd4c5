"""One row of features per machine out of a window, for detectors that take machines as samples and metrics as dimensions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.similarity.recent import Stretch

__all__ = ["due_features", "standardise", "window_features"]


def due_features(stretch: Stretch, config: SimilarityConfig) -> Iterator[tuple[int, np.ndarray]]:
    """(t, standardised features (M, 2K)) of every window that is due to be looked at."""
    for t in np.flatnonzero(stretch.due_T(config.refit_s)).tolist():
        rows_KWM = stretch.rows_KSM[:, t : t + config.width_rows]
        yield t, standardise(window_features(rows_KWM, stretch.known_KTM[:, t]), config.least_spread)


def window_features(rows_KWM: np.ndarray, known_KM: np.ndarray) -> np.ndarray:
    """(M, 2K): mean and standard deviation over the window's W rows. Where a machine lacks a metric it takes the peers' median:
    nothing is known against it."""
    features_2KM = np.concatenate([rows_KWM.mean(axis=1), rows_KWM.std(axis=1)])
    known_2KM = np.concatenate([known_KM, known_KM])
    for feature_M, known_M in zip(features_2KM, known_2KM, strict=True):
        if not known_M.all():
            feature_M[~known_M] = np.median(feature_M[known_M]) if known_M.any() else 0.0
    return np.asarray(features_2KM.T.astype(np.float64))


def standardise(features_MF: np.ndarray, least: float) -> np.ndarray:
    """Each feature over the machines: mean 0 and deviation 1. Features in which all are alike (deviation below `least`) become 0."""
    apart_MF = features_MF - features_MF.mean(axis=0)
    spread_F = features_MF.std(axis=0)
    return np.asarray(np.where(spread_F > least, apart_MF / np.where(spread_F > least, spread_F, 1.0), 0.0))
