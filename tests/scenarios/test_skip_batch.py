"""A batch that makes every number wrong, in a real job: it comes again, is left out, and the losses are those of a run without it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

skip_batch: ModuleType = importlib.import_module("skip_batch")
pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]


@pytest.mark.parametrize("case", ["all", pytest.param("memory", marks=pytest.mark.release)])
def test_a_bad_batch_is_left_out_and_the_losses_are_those_of_a_run_without_it(tmp_path: Path, case: str) -> None:
    found = skip_batch.play(tmp_path / "out", case, 0)
    assert (found.outcome, found.skipped, found.evicted, found.generations) == ("finished", str(skip_batch.BATCH), 0, 3)
    assert found.equal, "step by step, bit by bit"
