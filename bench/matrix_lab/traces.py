"""Reading what the training scripts have traced (bench/jobs/trainers/trouble.py): which process took which steps, and when."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.simulate.lab.record import start_ticks

__all__ = ["Trained", "read_traces", "read_troubles"]

_HEADER = struct.Struct("<iiq")
_RECORD = struct.Struct("<id")


@dataclass(frozen=True, slots=True)
class Trained:
    """One training process: its steps in the order in which it took them, and when (unix seconds)."""

    machine: str
    pid: int
    rank: int
    ticks: int
    steps: tuple[int, ...]
    times_s: tuple[float, ...]
    began_s: float

    @property
    def alive(self) -> bool:
        return start_ticks(self.pid) == self.ticks

    @property
    def step(self) -> int:
        """The last step taken; 0 before the first."""
        return self.steps[-1] if self.steps else 0


def read_traces(folder: Path) -> list[Trained]:
    """All processes that have trained, the oldest first."""
    found = []
    for path in folder.glob("*.trace"):
        machine, pid, _ = path.name.rsplit(".", 2)
        page = path.read_bytes()
        if len(page) < _HEADER.size:
            continue
        rank, count, ticks = _HEADER.unpack_from(page)
        if not ticks:
            continue
        records = [_RECORD.unpack_from(page, _HEADER.size + index * _RECORD.size) for index in range(count)]
        born_s = path.stat().st_ctime if not records else records[0][1]
        found.append(Trained(machine, int(pid), rank, ticks, tuple(r[0] for r in records), tuple(r[1] for r in records), born_s))
    return sorted(found, key=lambda trained: (trained.began_s, trained.rank))


def read_troubles(folder: Path) -> list[dict[str, Any]]:
    """What the scripts' own troubles were, in order: {what, rank, machine, step, pid, time_s}."""
    found = [json.loads(path.read_text()) for path in folder.glob("trouble-*")]
    return sorted(found, key=lambda trouble: float(trouble["time_s"]))
