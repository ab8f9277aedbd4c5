"""The door to the detectors: what is named is what comes, and what is missing is told in one line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from minder.diagnose.detectors import choose
from minder.diagnose.detectors.choose import NAMES, choose_detector
from minder.diagnose.detectors.default import DefaultDetector
from minder.diagnose.detectors.similarity.weights import Weights
from minder.model.errors import ConfigError, MissingExtraError


@dataclass
class NoWeights:
    asked: str = ""

    def __call__(self, name: str) -> Weights:
        self.asked = name
        raise LookupError(name)


def test_a_name_that_nobody_has_is_an_error_that_lists_the_names() -> None:
    with pytest.raises(ConfigError, match=r'no detector "prophet": use one of default, learned, pool, minder, '):
        choose_detector("prophet", NoWeights())


def test_the_default_needs_no_weights() -> None:
    assert isinstance(choose_detector("default", NoWeights()), DefaultDetector)


@pytest.mark.parametrize(("name", "folder"), [("minder-raw", "reference"), ("minder-int", "reference-int"), ("mahalanobis", "reference")])
def test_each_asks_for_its_own_weights(name: str, folder: str) -> None:
    reader = NoWeights()
    with pytest.raises(LookupError):
        choose_detector(name, reader)
    assert reader.asked == folder


@pytest.mark.parametrize(("name", "extra"), [("minder", "torch"), ("minder-con", "torch")])
def test_without_torch_one_line_names_the_extra(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'minder-cluster\[{extra}\]'"):
        choose_detector(name, NoWeights())


def test_without_pyod_one_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from minder.diagnose.detectors.similarity import pyod_scorer

    monkeypatch.setattr(pyod_scorer, "find_spec", lambda module: None)
    with pytest.raises(MissingExtraError, match=r"ecod needs PyOD: run `pip install 'minder-cluster\[models\]'`"):
        pyod_scorer.PyodScorer("ecod", {})


def test_every_name_says_what_it_is() -> None:
    assert all(NAMES.values())
    assert {"default", "minder", "mahalanobis", "ecod", "copod", "iforest", "lof", "knn", "pca", "autoencoder"} <= set(NAMES)


def test_choosing_loads_neither_torch_nor_pyod() -> None:
    code = (
        "import sys, minder.diagnose.detectors.choose as c; c.choose_detector('default', None); "
        "print({'torch', 'pyod', 'sklearn'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
