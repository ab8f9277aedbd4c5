"""A job that stands to be tested, for real: a crash that names no machine comes twice; a disk without room, which only a probe sees; a
machine that sends slowly, which only pair tests see."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from minder.model.errors import UnsupportedFaultError

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

diagnosis: ModuleType = importlib.import_module("diagnosis")


@pytest.mark.lab
@pytest.mark.timeout(480)
@pytest.mark.parametrize("case", diagnosis.CASES)
def test_a_job_is_tested_while_it_stands_and_trains_again(case: str, tmp_path: Path) -> None:
    try:
        played = diagnosis.play(case, tmp_path / "out")
    except UnsupportedFaultError as error:
        pytest.skip(str(error))
    print(diagnosis.table([played]))
    assert played.rungs[:2] == ["reattempt", "diagnose"]
    if case == "slow-sender":
        assert played.evicted == [diagnosis.SLOW] and played.rungs[2] == "evict", played
        assert played.found.endswith(f"m{diagnosis.SLOW} is slow"), "and nothing else of the pair tests"
    elif case == "disk-full":
        assert played.evicted == [diagnosis.FULL] and played.rungs[2] == "evict" and "the disk is full" in played.found
    else:
        assert played.evicted == [] and played.rungs[2] in ("trial", "reattempt")


@pytest.mark.lab
@pytest.mark.release
@pytest.mark.timeout(1000)
@pytest.mark.parametrize("case", diagnosis.SILENT)
def test_a_machine_that_computes_wrongly_goes_and_not_the_one_of_the_nan(case: str, tmp_path: Path) -> None:
    played = diagnosis.play(case, tmp_path / "out")
    print(diagnosis.table([played]))
    assert played.rungs[:2] == ["diagnose", "evict"] and played.evicted == [diagnosis.corrupt_machine(0)], played
