"""The generator and a few windows, for the tests of this folder and of its neighbours."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from minder.simulate.worlds.families import classic

sys.path.insert(0, str(Path(__file__).parent))  # learned_stumps


@pytest.fixture(scope="session")
def generator() -> ModuleType:
    return classic
