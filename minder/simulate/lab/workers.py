"""The training processes of a lab machine, as its launcher lists them in <run_dir>/jobs/<job>.json."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.model.errors import LabError
from minder.simulate.lab.machine import LabMachine
from minder.simulate.lab.record import stat_fields

__all__ = ["TrainingWorker", "job_processes", "process_tree", "training_workers"]


@dataclass(frozen=True, slots=True)
class TrainingWorker:
    """One worker that trains (it has a rank; a pre-warmed spare has none)."""

    job: str
    slot: int
    pid: int
    rank: int


def training_workers(machine: LabMachine) -> list[TrainingWorker]:
    """Workers with a rank that live on this machine, by job and slot. Raises LabError if there is none.

    A pid counts only if it belongs to this machine: a stale file may name one that has been given to another process since.
    """
    alive = set(machine.pids())
    found = [
        TrainingWorker(str(content["job"]), int(worker["slot"]), int(worker["pid"]), int(worker["rank"]))
        for content in _job_files(machine.run_dir / "jobs")
        for worker in content.get("workers", [])
        if worker.get("rank") is not None and worker.get("pid") in alive
    ]
    if not found:
        raise LabError(f"{machine.name} runs no training process: no living worker with a rank in {machine.run_dir / 'jobs'}")
    return sorted(found, key=lambda worker: (worker.job, worker.slot))


def job_processes(machine: LabMachine) -> list[tuple[int, int | None]]:
    """(pid, rank) of every living worker of this machine; rank None: it waits at the barrier."""
    alive = set(machine.pids())
    workers = [worker for content in _job_files(machine.run_dir / "jobs") for worker in content.get("workers", [])]
    return [(int(worker["pid"]), worker.get("rank")) for worker in workers if worker.get("pid") in alive]


def process_tree(machine: LabMachine, root: int) -> list[int]:
    """A process of this machine and all its living descendants, parents first."""
    parents = {pid: _parent(pid) for pid in machine.pids()}
    tree = [root]
    for pid in tree:
        tree.extend(child for child, parent in parents.items() if parent == pid)
    return tree


def _job_files(folder: Path) -> list[dict[str, Any]]:
    contents = []
    for path in sorted(folder.glob("*.json")):
        try:
            contents.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue
    return contents


def _parent(pid: int) -> int:
    fields = stat_fields(pid)
    return int(fields[1]) if fields else 0
