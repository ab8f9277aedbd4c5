"""A job whose checkpoints lie in its machines' memory, and in no folder that they share."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minder.edge.cache.members import kept_steps
from minder.record.incidents import kinds

pytestmark = [pytest.mark.lab, pytest.mark.timeout(420)]


def _taken_twice(run: Any) -> int:
    """Steps that a later generation took again."""
    lines = [json.loads(line)["step"] for line in (run.stage.folder / "train" / "losses.jsonl").read_text().splitlines()]
    return len(lines) - len(set(lines))


def _caches_of(machine: Any) -> list[int]:
    return [pid for pid in machine.pids() if b"\0cache\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _newest_kept(machine: Any) -> int:
    kept = kept_steps(machine.memory_dir)
    return kept[0].step if kept else -1


def test_a_cache_is_killed_and_a_machine_is_lost_with_its_memory(drama: Callable[..., Any], same_losses: Any) -> None:
    run = drama(memory=True, fault="crash", steps=48)
    run.start()
    run.reach(8)
    (killed,) = _caches_of(run.stage.lab.machines[0])
    os.kill(killed, signal.SIGKILL)  # its launcher starts the next one, which adopts what lies there
    run.until(lambda: _caches_of(run.stage.lab.machines[0]) not in ([], [killed]))
    before = run.step
    run.until(lambda: _newest_kept(run.stage.lab.machines[0]) > before)  # until it serves, a lost machine costs the steps since
    run.reach(run.step + 10)
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
