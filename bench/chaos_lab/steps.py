"""The job's steps as its losses.jsonl has them: which generation took which step, and when."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Restart", "Step", "Steps", "longest_stand", "restarts"]


@dataclass(frozen=True, slots=True)
class Step:
    step: int
    generation: int
    time_s: float


@dataclass(frozen=True, slots=True)
class Restart:
    """A generation that took steps after another, `before`. lost: steps of those before it that it took again."""

    before: int
    generation: int
    time_s: float
    lost: int
    stood_s: float


class Steps:
    """Reads what was appended since it last looked."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""
        self.taken: list[Step] = []

    def look(self) -> list[Step]:
        """All steps so far, in the order in which they were taken."""
        try:
            with self._path.open("rb") as stream:
                stream.seek(self._offset)
                fresh = stream.read()
        except OSError:
            return self.taken
        self._offset += len(fresh)
        *lines, self._rest = (self._rest + fresh).split(b"\n")
        for line in lines:
            found = json.loads(line)
            self.taken.append(Step(int(found["step"]), int(found["generation"]), float(found["time"])))
        return self.taken

    @property
    def step(self) -> int:
        """The highest step so far; 0 before the first."""
        return max((item.step for item in self.taken[-200:]), default=0)

    @property
    def last_s(self) -> float | None:
        return self.taken[-1].time_s if self.taken else None

    def typical_s(self, least_s: float) -> float:
        """The median of the newest steps' lengths; `least_s` where there are too few."""
        newest = self.taken[-60:]
        gaps = [b.time_s - a.time_s for a, b in itertools.pairwise(newest) if a.generation == b.generation]
        return max(least_s, statistics.median(gaps)) if len(gaps) >= 5 else least_s


def restarts(taken: Sequence[Step]) -> list[Restart]:
    """Every change of generation among the steps.

    >>> restarts([Step(1, 1, 0.0), Step(2, 1, 1.0), Step(3, 1, 2.0), Step(3, 2, 9.0)])
    [Restart(before=1, generation=2, time_s=9.0, lost=1, stood_s=7.0)]
    """
    found, highest = [], 0
    for before, after in itertools.pairwise(taken):
        highest = max(highest, before.step)
        if after.generation != before.generation:
            lost, stood_s = max(0, highest - after.step + 1), round(after.time_s - before.time_s, 2)
            found.append(Restart(before.generation, after.generation, after.time_s, lost, stood_s))
    return found


def longest_stand(taken: Sequence[Step], since_s: float, until_s: float) -> float:
    """The longest time without a step in a period, in seconds."""
    times_s = [since_s, *(item.time_s for item in taken if since_s < item.time_s < until_s), until_s]
    return max(b - a for a, b in itertools.pairwise(times_s))
