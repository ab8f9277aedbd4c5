"""A job whose checkpoints lie in its machines' memory, and in no folder that they share."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def _taken_twice(run: Any) -> int:
    """Steps that a later generation took again."""
    lines = [json.loads(line)["step"] for line in (run.stage.folder / "train" / "losses.jsonl").read_text().splitlines()]
    return len(lines) - len(set(lines))


def test_a_machine_is_lost_with_its_memory_and_at_most_one_step_is_taken_again(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama(memory=True, fault="crash", steps=36)
    run.start()
    run.reach(14)
    lost = run.stage.lab.machines[1]
    run.stage.power_off([lost])
    assert not lost.memory_dir.exists()
    assert run.finish() == "finished"
    assert run.evicted() == [lost.name]
    assert not any((run.stage.folder / "checkpoints").iterdir())
    assert same_losses(run)
    assert _taken_twice(run) <= 1
    restarts = run.events(kinds.GENERATION_STARTED)
    assert len(restarts) == 2
