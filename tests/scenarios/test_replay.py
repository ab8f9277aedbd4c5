"""A machine that flips one bit in one of a hundred steps, found by a live replay: suspended, two phases of groups, evicted, trained on."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))

replay_groups: ModuleType = importlib.import_module("replay_groups")


@pytest.mark.lab
@pytest.mark.timeout(480)
def test_a_machine_that_flips_a_bit_now_and_then_is_found_by_replaying_the_job(tmp_path: Path) -> None:
    played = replay_groups.play(tmp_path / "out", seed=1)
    print(replay_groups.table([played]))
    assert played.evicted == [played.faulty] and played.found.startswith("found: ")
    assert sorted(word.split()[1] for word in played.groups) == ["failed", "failed", "passed", "passed"]
