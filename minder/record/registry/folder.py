"""A model as a folder: model.json (which detector, its parameters, the range of its training data), weights.safetensors where it has a
network, card.md for people. Nothing in it is code, and nothing is unpickled.

The file's hash stands in model.json: weights that were cut off or exchanged are refused.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from minder.model.errors import BadInputError

__all__ = ["Model", "read_model", "write_model"]

_FORMAT = 1
_MODEL, _WEIGHTS, _CARD = "model.json", "weights.safetensors", "card.md"


@dataclass(frozen=True, slots=True)
class Model:
    """detector: its name (minder/diagnose/load_detector.py); parameters: what differs from its own defaults; ranges: (low, high) of each
    metric in its
    training, base units; network: what its arrays need to be fed; training: where it comes from (data's hash, recipe, time)."""

    detector: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    card: str = ""


def write_model(model: Model, folder: Path) -> None:
    """Write the folder, which may exist."""
    folder.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "format": _FORMAT,
        "detector": model.detector,
        "parameters": dict(model.parameters),
        "ranges": {name: list(bounds) for name, bounds in model.ranges.items()},
        "network": dict(model.network),
        "training": dict(model.training),
    }
    if model.arrays:
        from safetensors.numpy import save_file

        save_file({name: np.ascontiguousarray(array) for name, array in sorted(model.arrays.items())}, folder / _WEIGHTS)
        document["weights_sha256"] = _hash(folder / _WEIGHTS)
    (folder / _MODEL).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    (folder / _CARD).write_text(model.card or f"# {model.detector}\n", encoding="utf-8")


def read_model(folder: Path) -> Model:
    """Read a model folder. Raises BadInputError that says what is wrong with which file."""
    document = _read_document(folder / _MODEL)
    wanted = document.get("weights_sha256")
    card = folder / _CARD
    return Model(
        detector=str(document["detector"]),
        parameters=_table(document, "parameters", folder),
        ranges=_ranges(_table(document, "ranges", folder), folder),
        network=_table(document, "network", folder),
        arrays=_read_weights(folder / _WEIGHTS, str(wanted)) if wanted else {},
        training=_table(document, "training", folder),
        card=card.read_text(encoding="utf-8") if card.is_file() else "",
    )


def _read_document(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read ({error}): name a folder that `minder train` wrote") from error
    if not isinstance(document, dict) or not isinstance(document.get("detector"), str):
        raise BadInputError(f"{path} names no detector: name a folder that `minder train` wrote")
    if document.get("format") != _FORMAT:
        raise BadInputError(f"{path} has format {document.get('format')!r}, this minder reads {_FORMAT}: train the model again")
    return document


def _table(document: Mapping[str, Any], key: str, folder: Path) -> dict[str, Any]:
    found = document.get(key) or {}
    if not isinstance(found, dict):
        raise BadInputError(f"{folder / _MODEL}: {key} is no object: train the model again")
    return found


def _ranges(found: Mapping[str, Any], folder: Path) -> dict[str, tuple[float, float]]:
    try:
        return {name: (float(low), float(high)) for name, (low, high) in found.items()}
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{folder / _MODEL}: ranges are not pairs of numbers: train the model again") from error


def _read_weights(path: Path, wanted: str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not path.is_file():
        raise BadInputError(f"{path} is missing: copy the whole folder of the model")
    if _hash(path) != wanted:
        raise BadInputError(f"{path} is not the file that its model.json describes (sha256): copy the folder again, or train again")
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise BadInputError(f"{path} is no safetensors file ({error}): train the model again") from error


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
