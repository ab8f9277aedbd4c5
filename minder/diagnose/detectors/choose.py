"""The door to all detectors but the default: a name to a detector. What a detector does not need is not imported.

Detectors do no I/O: who chooses one that needs weights passes the function that reads them (minder/diagnose/load_detector.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from minder.diagnose.detectors.contract import Detector
from minder.model.errors import ConfigError, MissingExtraError

if TYPE_CHECKING:
    from minder.diagnose.detectors.learned.model import LearnedModel
    from minder.diagnose.detectors.similarity.config import SimilarityConfig
    from minder.diagnose.detectors.similarity.weights import Weights

__all__ = ["LEARNED", "NAMES", "REFERENCES", "choose_detector", "choose_learned"]

REFERENCES: Mapping[str, str] = {
    "minder": "the published system: one LSTM-VAE per metric",
    "minder-raw": "ablation: raw windows instead of embeddings",
    "minder-con": "ablation: the embeddings of all metrics as one",
    "minder-int": "ablation: one network that reads all metrics",
    "minder-at-once": "ablation: no continuity, the first window over the threshold accuses",
    "minder-manhattan": "other distance",
    "minder-chebyshev": "other distance",
    "minder-reconstruction": "distances between the windows without their noise, instead of between embeddings",
    "minder-all": "every metric that the site has, instead of the published seven",
}
_CLASSICAL = {
    "mahalanobis": "Mahalanobis distances between window features (the published baseline)",
    **dict.fromkeys(("ecod", "copod", "iforest", "lof", "knn", "pca", "autoencoder"), "PyOD, refitted to each window"),
}
LEARNED: Mapping[str, str] = {
    "learned": "boosted trees on peer-relative features, accumulated to a posterior over machines",
    "pool": "the default where the learned posterior does not contradict it, and the learned one by itself",
}
NAMES: Mapping[str, str] = {"default": "what minder uses", **LEARNED, **REFERENCES, **_CLASSICAL}

_REFIT_S = 30.0  # PyOD fits a model to every window that it looks at: a fit takes 1 to 1,000 ms
ReadWeights = Callable[[str], "Weights"]  # from "reference" (a network per metric) or "reference-int" (one for all)


def choose_detector(
    name: str,
    read_weights: ReadWeights,
    stages: Mapping[str, object] | None = None,
    config: SimilarityConfig | None = None,
) -> Detector:
    """A fresh detector. stages: machine to pipeline stage(s), which only the default looks at. config: of all but the default.

    Raises ConfigError for a name that is not in NAMES, MissingExtraError with the extra to install where something is missing.
    """
    if name == "default":
        from minder.diagnose.detectors.default import DefaultDetector

        return DefaultDetector(stages)
    if name not in NAMES or name in LEARNED:
        raise ConfigError(f'there is no detector "{name}": use one of {", ".join(NAMES)}')
    from minder.diagnose.detectors.similarity.config import SimilarityConfig
    from minder.diagnose.detectors.similarity.detector import SimilarityDetector

    chosen = config or SimilarityConfig()
    if name in REFERENCES:
        scorer, changed = _reference(name, read_weights, chosen)
        return SimilarityDetector(scorer, changed)
    if name != "mahalanobis" and not chosen.refit_s:
        chosen = replace(chosen, refit_s=_REFIT_S)
    return SimilarityDetector(_classical(name, read_weights), chosen)


def choose_learned(name: str, model: LearnedModel, stages: Mapping[str, object] | None = None) -> Detector:
    """A fresh detector of LEARNED. stages: machine to the group whose members do the same work."""
    from minder.diagnose.detectors.learned.detector import LearnedDetector, PoolDetector

    learned = LearnedDetector(model, stages)
    if name == "learned":
        return learned
    from minder.diagnose.detectors.default import DefaultDetector

    return PoolDetector(DefaultDetector(stages), learned)


def _reference(name: str, read_weights: ReadWeights, config: SimilarityConfig) -> tuple[Any, SimilarityConfig]:
    from minder.diagnose.detectors.similarity.vae_scorer import VaeScorer

    if name != "minder-raw":
        _need_torch(name)
    weights = read_weights("reference-int" if name == "minder-int" else "reference")
    match name:
        case "minder-raw":
            return VaeScorer(weights, "raw", name=name), config
        case "minder-con":
            return VaeScorer(weights, mode="joined", name=name), config
        case "minder-int":
            return VaeScorer(weights, mode="one", name=name), config
        case "minder-at-once":
            return VaeScorer(weights, name=name), replace(config, continuity_s=0.0)
        case "minder-manhattan":
            return VaeScorer(weights, name=name), replace(config, distance="manhattan")
        case "minder-chebyshev":
            return VaeScorer(weights, name=name), replace(config, distance="chebyshev")
        case "minder-reconstruction":
            return VaeScorer(weights, "reconstruction", name=name), config
        case "minder-all":
            return VaeScorer(weights, name=name), replace(config, metrics=weights.order)
        case _:
            return VaeScorer(weights), config


def _classical(name: str, read_weights: ReadWeights) -> Any:
    """The same limits and metrics as the reference, so that only the comparison differs."""
    weights = read_weights("reference")
    if name == "mahalanobis":
        from minder.diagnose.detectors.similarity.mahalanobis import MahalanobisScorer

        return MahalanobisScorer(weights.limits, weights.order)
    from minder.diagnose.detectors.similarity.pyod_scorer import PyodScorer

    return PyodScorer(name, weights.limits, weights.order)


def _need_torch(name: str) -> None:
    if find_spec("torch") is None:
        raise MissingExtraError(f"detector {name} needs torch: run `pip install 'minder-cluster[torch]'`")
