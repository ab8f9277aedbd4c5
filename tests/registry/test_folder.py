"""A model's folder: what was written is read, and what was exchanged, cut off or is of another kind is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from minder.model.errors import BadInputError
from minder.record.registry.folder import Model, read_model, write_model

pytestmark = pytest.mark.package("safetensors")

MODEL = Model(
    detector="minder",
    parameters={"width_rows": 8},
    ranges={"gpu_power_draw_watts": (100.0, 700.0)},
    network={"inputs": [["gpu_power_draw_watts"]]},
    arrays={"mean.bias": np.arange(8, dtype=np.float32).reshape(1, 8), "output.bias": np.zeros((1, 1), dtype=np.float32)},
    training={"data_sha256": "abc"},
    card="# A card\n",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_model(MODEL, tmp_path / "model")
    return tmp_path / "model"


def test_what_was_written_is_read(folder: Path) -> None:
    found = read_model(folder)
    assert {name: array.tolist() for name, array in found.arrays.items()} == {name: a.tolist() for name, a in MODEL.arrays.items()}
    for name in ("detector", "parameters", "ranges", "network", "training", "card"):
        assert getattr(found, name) == getattr(MODEL, name)


def test_only_plain_formats_are_in_it(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == {"model.json", "weights.safetensors", "card.md"}


def test_exchanged_weights_are_refused(folder: Path) -> None:
    data = bytearray((folder / "weights.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "weights.safetensors").write_bytes(bytes(data))
    with pytest.raises(BadInputError, match="sha256"):
        read_model(folder)


def test_missing_weights_are_reported(folder: Path) -> None:
    (folder / "weights.safetensors").unlink()
    with pytest.raises(BadInputError, match="weights"):
        read_model(folder)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"format": 99}, "format 99"),
        ({"detector": None}, "no detector"),
        ({"parameters": [1]}, "parameters"),
        ({"ranges": {"x": [1]}}, "ranges"),
    ],
)
def test_a_document_of_another_kind_is_reported(folder: Path, change: dict[str, object], word: str) -> None:
    document = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**document, **change}))
    with pytest.raises(BadInputError, match=word) as caught:
        read_model(folder)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_model_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="minder train"):
        read_model(tmp_path)
