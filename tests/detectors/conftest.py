"""The generator and a few windows, for the tests of this folder and of its neighbours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def generator(load_file: Callable[[Path], ModuleType]) -> ModuleType:
    return load_file(Path(__file__).with_name("generator.py"))
