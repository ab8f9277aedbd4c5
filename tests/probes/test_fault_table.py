"""Faults that one probe finds and no other: a disk full or slow, a wrong clock, a flipped bit (bench/probe_faults.py has the table)."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parents[2] / "bench" / "probe_faults.py"
NAMES = ("clock", "disk", "alignment")
pytestmark = [pytest.mark.root, pytest.mark.release]


@pytest.fixture(scope="module")
def table() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("probe_faults", BENCH)
    assert spec is not None and spec.loader is not None
    module = sys.modules["probe_faults"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["probe_faults"]


@pytest.fixture(scope="module")
def healthy(table: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return table.healthy_runs(NAMES, tmp_path_factory.mktemp("healthy"))


@pytest.mark.parametrize(
    ("fault", "finder"), [("full disk", "disk"), ("slow disk", "disk"), ("clock 30 s ahead", "clock"), ("flipped bit", "alignment")]
)
def test_a_fault_is_found_by_the_probe_of_its_part_and_by_no_other(
    table: ModuleType, healthy: Any, tmp_path: Path, fault: str, finder: str
) -> None:
    if fault == "slow disk" and not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("a slow disk is a file system of its own, and /dev/fuse cannot be opened")
    if fault.startswith("clock") and shutil.which("gcc") is None:
        pytest.skip("the clock of a process is moved by a library that gcc makes")
    with table.FAULTS[fault](tmp_path) as condition:
        judged = table.judged_under(condition, healthy, NAMES, tmp_path)
    wanted = "slow" if fault == "slow disk" else "fail"
    assert [probe for probe, item in judged.items() if item.verdict == wanted] == [finder], judged
