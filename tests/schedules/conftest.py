"""Where the simulated fleet lies: a plain folder, which is no package."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

FAKES = Path(__file__).parents[1] / "fakes"


@pytest.fixture(scope="session")
def scene() -> Iterator[ModuleType]:
    """tests/fakes/scene.py."""
    sys.path.append(str(FAKES))
    try:
        yield importlib.import_module("scene")
    finally:
        sys.path.remove(str(FAKES))


@pytest.fixture(scope="session")
def schedule(scene: ModuleType) -> ModuleType:
    """tests/fakes/schedule.py."""
    return importlib.import_module("schedule")


@pytest.fixture(scope="module")
def empty_ledger(scene: ModuleType) -> Iterator[Path]:
    """While it is used, everything that is no part of the product is simulated."""
    logging.disable(logging.CRITICAL)
    try:
        with scene.simulated() as path:
            yield path
    finally:
        logging.disable(logging.NOTSET)


@pytest.fixture
def broken(scene: ModuleType, schedule: ModuleType, empty_ledger: Path) -> Callable[[int], list[str]]:
    """broken(seed): what does not hold in the schedule that is drawn with it, then that schedule and its story; [] if all does."""

    def play(seed: int) -> list[str]:
        drawn = schedule.draw(seed)
        played = scene.play(drawn, empty_ledger)
        return [*played.watch.broken, drawn.text(), *played.trace] if played.watch.broken else []

    return play
