"""The weights that ship: the reference works out of the box, offline, and its files are those that their manifest describes."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from minder.diagnose.detectors.similarity.config import PUBLISHED_METRICS
from minder.ingest.windows import align_columns
from minder.model.resources import find_resource
from minder.record.registry.folder import read_model

pytestmark = pytest.mark.package("torch", "safetensors")


@pytest.mark.parametrize("name", ["reference", "reference-int"])
def test_the_shipped_networks_are_the_published_shape_and_say_where_they_come_from(name: str) -> None:
    model = read_model(find_resource(f"models/{name}"))
    assert model.detector == "minder"
    assert model.arrays["encoder.hidden"].shape[1:] == (16, 4)
    assert model.arrays["mean.weight"].shape[1:] == (8, 4)
    assert {"script", "recipes", "seed", "steps", "data_sha256", "error"} <= set(model.training)
    assert {metric for inputs in model.network["inputs"] for metric in inputs} >= set(PUBLISHED_METRICS)
    assert set(model.network["order"]) == set(model.network["limits"])


def test_the_reference_finds_a_hang_with_its_shipped_weights(generator: ModuleType) -> None:
    from minder.diagnose.load_detector import load_detector

    recipe = generator.Recipe(seed=5, fault="hang", machines=6, pipeline=1, interval_s=10.0, duration_s=700, onset_s=330.0)
    columns = generator.generate(recipe)
    window = align_columns(columns, 10.0)
    last = load_detector("minder")({}).score(replace(window, device_TMK=None))[-1]
    assert last.machines[int(np.argmax(last.score_M))] == columns.culprit
    assert last.score_M.max() >= last.threshold
