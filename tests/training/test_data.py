"""Data: what is held back stays held back, and the hash says whether it is the same data."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from minder.model.errors import BadInputError
from minder.offline.training.data import gather_data
from minder.offline.training.recipe import DataRules, TrainingRecipe


def recordings(folder: Path, count: int) -> None:
    folder.mkdir()
    truths = []
    for index in range(count):
        inner = folder / f"r{index:03d}"
        inner.mkdir()
        (inner / "job.toml").write_text(f'name = "{inner.name}"\nmachines = ["m0"]\n')
        truths.append({"recording": inner.name, "fault": None})
    (folder / "truth.json").write_text(json.dumps(truths))


def recipe(folder: Path, **rules: object) -> TrainingRecipe:
    return TrainingRecipe(name="x", data=DataRules(recordings=("set",), **rules), folder=folder)  # type: ignore[arg-type]


def test_each_recording_stays_on_its_side_when_others_come(tmp_path: Path) -> None:
    recordings(tmp_path / "set", 40)
    first = gather_data(recipe(tmp_path), tmp_path / "scratch")
    assert 0 < len(first.held_back) < len(first.train)
    assert not {item.path for item in first.train} & {item.path for item in first.held_back}
    shutil.rmtree(tmp_path / "set")
    recordings(tmp_path / "set", 60)
    second = gather_data(recipe(tmp_path), tmp_path / "scratch")
    assert {item.path for item in first.held_back} <= {item.path for item in second.held_back}


@pytest.mark.lab
def test_the_hash_depends_on_bytes_and_truth_and_on_nothing_else(tmp_path: Path) -> None:
    recordings(tmp_path / "set", 4)
    first = gather_data(recipe(tmp_path), tmp_path).sha256
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.copytree(tmp_path / "set", moved / "set")
    assert gather_data(recipe(moved), moved).sha256 == first
    (moved / "set/r000/job.toml").write_text('name = "r000"\nmachines = ["m1"]\n')
    assert gather_data(recipe(moved), moved).sha256 != first


def test_no_data_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="set"):
        gather_data(recipe(tmp_path), tmp_path)
    (tmp_path / "set").mkdir()
    with pytest.raises(BadInputError, match="no labelled recording"):
        gather_data(recipe(tmp_path), tmp_path)
    shutil.rmtree(tmp_path / "set")
    recordings(tmp_path / "set", 2)
    with pytest.raises(BadInputError, match="held back"):
        gather_data(recipe(tmp_path, held_back=0.999999), tmp_path)
