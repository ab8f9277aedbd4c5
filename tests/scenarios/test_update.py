"""Another version of the code of a real job: it comes with a crash's restart; a bad one is taken back by the ladder."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from minder.record.incidents import kinds

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

update: ModuleType = importlib.import_module("update")
pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
Start = Callable[..., Any]


def versions(run: Any) -> list[int]:
    return [int(event.payload.get("update") or 0) for event in run.events(kinds.GENERATION_STARTED)]


def settle(run: Any, policy: str) -> None:
    """More settings of [policy], before the controller is started."""
    path = run.stage.folder / "job.toml"
    path.write_text(path.read_text().replace("[policy]\n", f"[policy]\n{policy}\n", 1))


def test_an_update_waits_for_a_crash_and_its_machines_stay(drama: Start, tmp_path: Path) -> None:
    run = drama(machines=3, standbys=0, steps=4000, fault="crash")
    run.start()
    run.reach(8)
    code = update.write_code(tmp_path / "project", "    _append(job.options.output / 'new-code', '.')\n")
    update.job(run.stage, "update", run.stage.job, "--code", str(code), "--note", "count steps")
    assert versions(run) == [0] and not (run.stage.folder / "train" / "new-code").exists(), "nothing is started again for it"
    run.stage.inject("crash", 1)
    run.until(lambda: len(run.events(kinds.FIRST_STEP)) >= 2)
    assert versions(run) == [0, 1] and run.evicted() == [] and len(set(map(str, run.generations()))) == 1
    run.until(lambda: (run.stage.folder / "train" / "new-code").exists())
    (second,) = run.events(kinds.FIRST_STEP)[1:2]
    assert second.payload["resumed_from"] >= 7, "it goes on from its checkpoint"


def test_a_bad_update_is_taken_back_by_the_ladder(drama: Start, tmp_path: Path) -> None:
    run = drama(machines=3, standbys=0, steps=4000, fault="crash")
    settle(run, 'rollback = "auto"')
    run.start()
    run.reach(8)
    code = update.write_code(tmp_path / "project", "    if job.rank == 0:\n        raise KeyError('loss_scale')\n")
    update.job(run.stage, "update", run.stage.job, "--code", str(code), "--urgent", "--note", "scale the loss")
    run.until(lambda: versions(run)[-1] == 0 and len(versions(run)) >= 4, 120.0)
    run.until(lambda: len(run.events(kinds.FIRST_STEP)) >= 2)
    assert set(versions(run)[1:-1]) == {1} and run.evicted() == []
    notes = [event for event in run.events(kinds.NOTE) if event.payload.get("update") == 1]
    assert [event.incident is not None for event in notes] == [True] and "first failure after update 1" in notes[0].payload["text"]
    rungs = [event.payload["decision"]["rung"] for event in run.events(kinds.INTENT) if "decision" in event.payload]
    assert rungs[-1] == "rollback" and set(rungs[:-1]) == {"reattempt"}
