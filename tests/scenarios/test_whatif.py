"""A DP x PP job that traces its steps, slow for three reasons one after the other: two are pages that say which, one is a machine's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from minder.ingest.sources.recording import read_recording

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def stuck() -> ModuleType:
    """bench/stuck.py."""
    path = Path(__file__).parents[2] / "bench" / "stuck.py"
    spec = importlib.util.spec_from_file_location("bench_stuck", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_only_the_slow_worker_costs_a_machine_and_pages_say_what_else_it_was(stuck: ModuleType, tmp_path: Path) -> None:
    row = stuck.run("stages-causes", True, tmp_path, 0)
    assert row["right"], row
    assert row["pages"] == ["sequence imbalance", "stage imbalance"], row
    assert "whatif" in row["evicting"], row
    studies = [study for sighting in read_recording(tmp_path / "recording").sightings for study in sighting.studies]
    assert {"sequence imbalance", "stage imbalance", "worker"} <= {study.cause for study in studies}
