"""From a word to a detector: a detector's name, a model folder, or the URI of a registered model. Registry and detectors meet only here.

The registry reads weights and parameters, the detector takes arrays; `app`, `evaluation` and `training` ask here for what is named.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from minder.detectors.contract import Detector
from minder.detectors.default import DefaultConfig, DefaultDetector
from minder.errors import ConfigError, MinderError
from minder.registry.folder import Model, read_model
from minder.resources import find_resource

__all__ = ["MakeDetector", "equip_detector", "equip_model", "open_model"]

MakeDetector = Callable[[Mapping[str, object]], Detector]  # from each machine's pipeline stage(s)
C = TypeVar("C")


@functools.lru_cache(maxsize=8)
def equip_detector(name: str = "default") -> MakeDetector:
    """What makes a detector for one job; it is read once. Raises as `open_model` and `equip_model` do."""
    return equip_model(open_model(name))


@functools.lru_cache(maxsize=8)
def open_model(name: str) -> Model:
    """The model behind a word: "models:/NAME@ALIAS" or "models:/NAME/VERSION" (the registry), a folder that `minder train` wrote, or a
    detector's name (the model that ships with minder, else the detector as it is). Raises ConfigError or BadInputError."""
    if name.startswith("models:/"):
        from minder.registry.mlflow_registry import Registry

        with tempfile.TemporaryDirectory(prefix="minder-model-") as scratch:
            return read_model(Registry().fetch(name, Path(scratch)))
    if (Path(name) / "model.json").is_file():
        return read_model(Path(name))
    if "/" not in name and (shipped := _shipped(name)) is not None:
        return read_model(shipped)
    if name in _PLAIN:
        return Model(name)
    known = ", ".join(sorted(_MAKERS))
    raise ConfigError(f'there is no detector "{name}": use {known}, a folder with a model.json, or models:/minder-detector@champion')


def equip_model(model: Model) -> MakeDetector:
    """What makes a detector from a model. Raises ConfigError for a detector or a parameter that there is not."""
    maker = _MAKERS.get(model.detector)
    if maker is None:
        raise ConfigError(f'a model for detector "{model.detector}" needs a newer minder: this one has {", ".join(sorted(_MAKERS))}')
    return maker(model)


def _shipped(name: str) -> Path | None:
    """The folder of a shipped model, if there is one."""
    try:
        return find_resource(f"models/{_FOLDERS.get(name, name)}/model.json").parent
    except MinderError:
        return None


def _configured(kind: type[C], parameters: Mapping[str, Any], where: str) -> C:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(parameters) - known)
    if unknown:
        raise ConfigError(f'{where} has no parameter "{unknown[0]}": it has {", ".join(sorted(known))}')
    return kind(**parameters)


def _default(model: Model) -> MakeDetector:
    config = _configured(DefaultConfig, model.parameters, "the default detector")
    return lambda stages: DefaultDetector(stages, config)


def _reference(model: Model) -> MakeDetector:
    from minder.detectors.similarity.config import SimilarityConfig
    from minder.detectors.similarity.detector import SimilarityDetector
    from minder.detectors.similarity.vae_scorer import VaeScorer
    from minder.detectors.similarity.weights import Weights

    if not model.arrays:
        raise ConfigError("this model of detector minder has no weights: `minder train reference` makes some")
    limits = {name: (float(low), float(high)) for name, (low, high) in model.network["limits"].items()}
    inputs = tuple(tuple(names) for names in model.network["inputs"])
    weights = Weights(inputs, tuple(model.network["order"]), limits, model.arrays)
    config = _configured(SimilarityConfig, model.parameters, "the reference")
    return lambda stages: SimilarityDetector(VaeScorer(weights), config)


_MAKERS: dict[str, Callable[[Model], MakeDetector]] = {"default": _default, "minder": _reference}
_PLAIN = frozenset({"default"})  # need no weights
_FOLDERS = {"minder": "reference"}
