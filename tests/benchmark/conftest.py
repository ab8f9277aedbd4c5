from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def script() -> ModuleType:
    """bench/benchmark.py, which is no package."""
    spec = importlib.util.spec_from_file_location("bench_benchmark", Path(__file__).parents[2] / "bench/benchmark.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
