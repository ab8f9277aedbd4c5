"""PyOD's classical detectors over the same windows: machines are samples, refitted to each window, as PyOD is meant to be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np

from minder.diagnose.detectors.similarity.config import SimilarityConfig
from minder.diagnose.detectors.similarity.features import due_features
from minder.diagnose.detectors.similarity.recent import Stretch
from minder.model.errors import ConfigError, MissingExtraError

__all__ = ["PYOD_NAMES", "PyodScorer"]

PYOD_NAMES = ("autoencoder", "copod", "ecod", "iforest", "knn", "lof", "pca")


class PyodScorer:
    """WindowScorer over all metrics at once. A fit stands for `refit_s` of the configuration, and at least for one row."""

    def __init__(self, name: str, limits: Mapping[str, tuple[float, float]], order: Sequence[str] = (), seed: int = 0) -> None:
        self.name = name
        self.limits: Mapping[str, tuple[float, float]] = dict(limits)
        self.order = tuple(order)
        self._make = _maker(name, seed)

    def lanes(self, metrics: Sequence[str]) -> tuple[str, ...]:
        return (self.name,) if metrics else ()

    def score(self, stretch: Stretch, config: SimilarityConfig) -> np.ndarray:
        known_TM = np.asarray(stretch.known_KTM.any(axis=0))
        found_TM = np.full(known_TM.shape, np.nan)
        for t, features_MF in due_features(stretch, config):
            found_TM[t] = self._fit(features_MF)
        found_TM[~known_TM] = np.nan
        return found_TM[None]

    def _fit(self, features_MF: np.ndarray) -> np.ndarray:
        machines = len(features_MF)
        features_MF = features_MF[:, features_MF.any(axis=0)]  # where all are alike there is nothing to fit
        if machines < 3 or not features_MF.shape[1]:
            return np.zeros(machines)
        order_M = np.lexsort(features_MF.T)  # a model that draws at random must not depend on the order of machines
        model = self._make(machines, features_MF.shape[1])
        model.fit(features_MF[order_M])
        scores_M = np.empty(machines)
        scores_M[order_M] = model.decision_scores_
        scores_M = np.nan_to_num(scores_M - np.nanmin(scores_M), posinf=0.0)
        return np.asarray(np.maximum(scores_M, 0.0) + 1.0)  # only how far one lies above the others means anything


def _maker(name: str, seed: int) -> Callable[[int, int], Any]:
    """Machines and features to a fresh PyOD model. Raises MissingExtraError without the extra."""
    if find_spec("pyod") is None:
        raise MissingExtraError(f"detector {name} needs PyOD: run `pip install 'minder-cluster[models]'`")
    if name not in PYOD_NAMES:
        raise ConfigError(f'PyOD detector "{name}" is not known: use one of {", ".join(PYOD_NAMES)}')
    return _MAKERS[name](seed)


def _ecod(seed: int) -> Callable[[int, int], Any]:
    from pyod.models.ecod import ECOD

    return lambda machines, features: ECOD()


def _copod(seed: int) -> Callable[[int, int], Any]:
    from pyod.models.copod import COPOD

    return lambda machines, features: COPOD()


def _iforest(seed: int) -> Callable[[int, int], Any]:
    from pyod.models.iforest import IForest

    return lambda machines, features: IForest(random_state=seed)


def _lof(seed: int) -> Callable[[int, int], Any]:
    from pyod.models.lof import LOF

    return lambda machines, features: LOF(n_neighbors=_neighbours(machines))


def _knn(seed: int) -> Callable[[int, int], Any]:
    from pyod.models.knn import KNN

    return lambda machines, features: KNN(n_neighbors=_neighbours(machines))


def _pca(seed: int) -> Callable[[int, int], Any]:
    from pyod.models.pca import PCA

    return lambda machines, features: PCA(n_components=min(3, machines - 1, features), standardization=False, random_state=seed)


def _autoencoder(seed: int) -> Callable[[int, int], Any]:
    from pyod.models.auto_encoder import AutoEncoder

    def make(machines: int, features: int) -> Any:
        return AutoEncoder(
            hidden_neuron_list=[8, 4], epoch_num=20, batch_size=max(2, machines), batch_norm=False, dropout_rate=0.0, random_state=seed,
            verbose=0, preprocessing=False, device="cpu",
        )  # fmt: skip

    return make


def _neighbours(machines: int) -> int:
    """A third of the machines, at most five: a faulty machine never has so many alike."""
    return max(1, min(5, machines // 3))


_MAKERS: Mapping[str, Callable[[int], Callable[[int, int], Any]]] = {
    "autoencoder": _autoencoder,
    "copod": _copod,
    "ecod": _ecod,
    "iforest": _iforest,
    "knn": _knn,
    "lof": _lof,
    "pca": _pca,
}
