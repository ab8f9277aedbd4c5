"""Who holds the job up, by stacks and dumps of real processes: where connections name nobody, or would blame the wrong thing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from minder.ingest.sources.recording import read_recording
from minder.model.errors import LabError

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def stuck() -> ModuleType:
    """bench/stuck.py."""
    path = Path(__file__).parents[2] / "bench" / "stuck.py"
    spec = importlib.util.spec_from_file_location("bench_stuck", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.release
def test_a_rank_that_sleeps_in_its_script_is_evicted_and_the_verdict_says_where_it_stands(stuck: ModuleType, tmp_path: Path) -> None:
    row = stuck.run("sleep", True, tmp_path, 0)
    assert row["right"], row
    recorded = {item.source for sighting in read_recording(tmp_path / "recording").sightings for item in sighting.statements}
    if row["says"]:  # connections may have been as quick
        assert recorded - {"look"} == {"stacks", "collectives"}
        assert any("sleeping" in said or "not launched" in said for said in row["says"])


def test_a_data_loader_that_deadlocks_is_the_programs_fault_and_no_machines(stuck: ModuleType, tmp_path: Path) -> None:
    row = stuck.run("loader", False, tmp_path, 0)
    assert row["right"] and row["named"] == [], row


@pytest.mark.release
def test_a_writer_that_no_signal_ends_does_not_hold_its_eviction_up(stuck: ModuleType, tmp_path: Path) -> None:
    """Its disk stands: state D until the disk comes back, whoever kills it. The job goes on without it."""
    try:
        row = stuck.run("frozen-disk", False, tmp_path, 0)
    except LabError as error:
        if "no file system of its own" in str(error):
            pytest.skip(str(error))
        raise
    assert row["right"], row
    assert any("uninterruptible" in said for said in row["says"]), row


@pytest.mark.release
def test_a_rank_whose_code_slows_every_step_is_named_by_a_vote_and_stays(stuck: ModuleType, tmp_path: Path) -> None:
    """Nothing in telemetry or connections says who it is: it sleeps where the others wait. Five looks at the stacks do."""
    row = stuck.run("slow-python", False, tmp_path, 0)
    assert row["right"] and row["verdict"] == "machine", row
    assert any("of 5 rounds" in said and "count_tokens" in said for said in row["says"]), row
    assert 0 < row["alarm_after_s"] < row["after_s"], "the trigger says that something is slow long before it is known who"
    recorded = [item.source for sighting in read_recording(tmp_path / "recording").sightings for item in sighting.statements]
    assert recorded == ["round"] * 5
