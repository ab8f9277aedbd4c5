from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def generator() -> ModuleType:
    """The trace generator, a file beside the tests."""
    name = "whatif_generator"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("generator.py"))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture
def published() -> Callable[[str], Path]:
    """The folder of the public traces, where there is one beside the checkout."""

    def find(name: str) -> Path:
        folder = Path(__file__).resolve().parents[4] / "shared" / "data" / "op_traces"
        if not (folder / f"trace-{name}.parquet").exists():
            pytest.skip("the public traces are not here")
        return folder

    return find
