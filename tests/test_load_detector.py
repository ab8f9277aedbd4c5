"""From a word to a detector: names, folders with parameters, and clear words for what there is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.load_detector import detector_maker, load_detector, open_model
from minder.model.errors import BadInputError, ConfigError
from minder.record.registry.folder import Model, write_model


def test_the_default_needs_nothing() -> None:
    detector = load_detector("default")({})
    assert isinstance(detector, DefaultDetector)
    assert load_detector("default")({}) is not detector, "every job has a detector of its own"


def test_a_folder_brings_its_parameters(tmp_path: Path) -> None:
    write_model(Model("default", {"patience_s": 33.0}, {"cpu_usage_ratio": (0.1, 0.9)}), tmp_path / "m")
    detector = load_detector(str(tmp_path / "m"))({})
    assert isinstance(detector, DefaultDetector) and detector.config.patience_s == 33.0
    assert open_model(str(tmp_path / "m")).ranges == {"cpu_usage_ratio": (0.1, 0.9)}


def test_names_and_parameters_that_there_are_not() -> None:
    with pytest.raises(ConfigError, match="crystal") as caught:
        load_detector("crystal")
    assert "default" in str(caught.value)
    with pytest.raises(ConfigError, match="no parameter"):
        detector_maker(Model("default", {"patience": 33.0}))
    with pytest.raises(ConfigError, match="crystal"):
        detector_maker(Model("crystal"))
    with pytest.raises(BadInputError):
        load_detector("./gone")


def test_the_default_loads_neither_registry_nor_networks() -> None:
    code = (
        "import sys; from minder.diagnose.load_detector import load_detector; load_detector('default')({});"
        "bad = {'mlflow', 'torch', 'sklearn', 'pyod', 'safetensors', 'pandas'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["learned", "pool"])
def test_the_learned_detectors_ship_and_leave_the_default_as_it_is(name: str) -> None:
    pytest.importorskip("safetensors", reason="needs the extra models")
    model = open_model(name)
    assert model.detector == name and model.training["data_sha256"]
    assert type(detector_maker(model)({})).__name__ == {"learned": "LearnedDetector", "pool": "PoolDetector"}[name]
    assert isinstance(load_detector("default")({}), DefaultDetector)
