from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def generator(load_file: Callable[[Path], ModuleType]) -> ModuleType:
    return load_file(Path(__file__).with_name("generator.py"))


@pytest.fixture
def published() -> Callable[[str], Path]:
    """The folder of the public traces, where there is one beside the checkout."""

    def find(name: str) -> Path:
        folder = Path(__file__).resolve().parents[4] / "shared" / "data" / "op_traces"
        if not (folder / f"trace-{name}.parquet").exists():
            pytest.skip("the public traces are not here")
        return folder

    return find
