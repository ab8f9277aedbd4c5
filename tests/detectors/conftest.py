"""The generator and a few windows, for the tests of this folder and of its neighbours."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


def load_generator() -> ModuleType:
    """tests/detectors/generator.py as a module (test folders are no packages)."""
    name = "minder_test_generator"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("generator.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def generator() -> ModuleType:
    return load_generator()
