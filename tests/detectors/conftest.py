"""The generator and a few windows, for the tests of this folder and of its neighbours."""

from __future__ import annotations

from types import ModuleType

import pytest

from minder.simulate.worlds.families import classic


@pytest.fixture(scope="session")
def generator() -> ModuleType:
    return classic
