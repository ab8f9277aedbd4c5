"""From a word to a detector: a detector's name, a model folder, or the URI of a registered model. Registry and detectors meet only here.

The registry reads weights and parameters, the detector takes arrays; `app`, `evaluation` and `training` ask here for what is named.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from minder.diagnose.detectors.choose import LEARNED, NAMES, choose_detector, choose_learned
from minder.diagnose.detectors.contract import Detector
from minder.diagnose.detectors.default import DefaultConfig, DefaultDetector
from minder.model.errors import ConfigError, MinderError
from minder.model.resources import find_resource
from minder.record.registry.folder import Model, read_model, write_model

if TYPE_CHECKING:
    from minder.diagnose.detectors.similarity.weights import Weights

__all__ = ["MakeDetector", "detector_maker", "load_detector", "model_at_hand", "open_model"]

MakeDetector = Callable[[Mapping[str, object]], Detector]  # from each machine's pipeline stage(s)
C = TypeVar("C")


def load_detector(name: str = "default") -> MakeDetector:
    """What makes a detector for one job. Raises as `open_model` and `detector_maker` do."""
    return detector_maker(open_model(name))


def open_model(name: str) -> Model:
    """The model behind a word: "models:/NAME@ALIAS" or "models:/NAME/VERSION" (the registry), a folder that `minder train` wrote, or a
    detector's name (the model that ships with minder, else the detector as it is). Raises ConfigError or BadInputError."""
    if name.startswith("models:/"):
        from minder.record.registry.mlflow_registry import Registry

        with tempfile.TemporaryDirectory(prefix="minder-model-") as scratch:
            return read_model(Registry().fetch(name, Path(scratch)))
    if (Path(name) / "model.json").is_file():
        return read_model(Path(name))
    if name not in NAMES:
        known = ", ".join(NAMES)
        raise ConfigError(f'there is no detector "{name}": use {known}, a folder with a model.json, or models:/minder-detector@champion')
    if name == "default":
        return Model(name)  # models/default holds what `learned` and `pool` read: it changes nothing of the default
    shipped = _shipped("default" if name in LEARNED else "reference" if name == "minder" else name)
    if shipped is None:
        return Model(name)
    return replace(read_model(shipped), detector=name) if name in LEARNED else read_model(shipped)


@contextmanager
def model_at_hand(name: str) -> Iterator[str]:
    """A word that stands for the same model without a registry: for many jobs, or other processes, that ask for it again and again."""
    if not name.startswith("models:/"):
        yield name
        return
    with tempfile.TemporaryDirectory(prefix="minder-model-") as scratch:
        write_model(open_model(name), Path(scratch))
        yield scratch


def detector_maker(model: Model) -> MakeDetector:
    """What makes a detector from a model. Raises ConfigError for a detector or a parameter that there is not."""
    if model.detector not in NAMES:
        raise ConfigError(f'there is no detector "{model.detector}": this minder has {", ".join(NAMES)}')
    if model.detector == "default":
        config = _configured(DefaultConfig, model.parameters, "the default detector")
        return lambda stages: DefaultDetector(stages, config)
    if model.detector in LEARNED:
        return _make_learned(model)
    from minder.diagnose.detectors.similarity.config import SimilarityConfig

    similarity = _configured(SimilarityConfig, model.parameters, f"detector {model.detector}")
    read = functools.partial(_read_weights, model)
    choose_detector(model.detector, read, {}, similarity)  # what is missing is raised now, not in the middle of a replay
    return lambda stages: choose_detector(model.detector, read, stages, similarity)


def _make_learned(model: Model) -> MakeDetector:
    from minder.diagnose.detectors.learned.model import LearnedModel

    if not model.arrays:
        raise ConfigError(f"no trees for detector {model.detector}: models/default does not ship; `minder train default` makes some")
    learned = LearnedModel.of(model.arrays, model.network)
    return lambda stages: choose_learned(model.detector, learned, stages)


def _read_weights(model: Model, name: str) -> Weights:
    """The model's own networks, else those that ship: models/reference (one per metric), models/reference-int (one for all)."""
    from minder.diagnose.detectors.similarity.weights import Weights

    if not model.arrays:
        folder = _shipped(name)
        if folder is None:
            raise ConfigError(f"no weights for detector {model.detector}: models/{name} does not ship; `minder train reference` makes some")
        model = read_model(folder)
    try:
        limits = {metric: (float(low), float(high)) for metric, (low, high) in model.network["limits"].items()}
        inputs = tuple(tuple(str(metric) for metric in metrics) for metrics in model.network["inputs"])
        return Weights(inputs, tuple(model.network["order"]), limits, model.arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"the model of detector {model.detector} lacks {error} in its network: train it again") from error


def _shipped(name: str) -> Path | None:
    """The folder of a shipped model, if there is one."""
    try:
        return find_resource(f"models/{name}/model.json").parent
    except MinderError:
        return None


def _configured(kind: type[C], parameters: Mapping[str, Any], where: str) -> C:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise ConfigError(f'{where} has no parameter "{unknown[0]}": it has {", ".join(sorted(known))}')
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in parameters.items()})
