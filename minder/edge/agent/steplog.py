"""Steps of a job that calls nothing of ours, read from the log that its launcher or scheduler keeps.

A thread of its own reads: a log on a file server that hangs must stop neither the samples nor the answers.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.edge.agent.tail import Tail
from minder.edge.signals.spikes import Spike, StepSpikes
from minder.edge.signals.steps import StepLine, StepReader

__all__ = ["LoggedSteps", "StepLog"]

_LOOK_S = 0.25
_CHUNK_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class LoggedSteps:
    """The newest step in a log, and the first one since it is followed. Times are those of reading, unix seconds."""

    step: int
    time_s: float
    first_step: int
    first_time_s: float
    loss: float | None = None


class StepLog:
    """Follows one file from its end on, through truncation and renaming (logrotate); it may also come into being later.

    `poll` may be called by anybody instead of `start`. Raises BadInputError for a pattern that cannot be used.
    """

    def __init__(self, path: Path, pattern: str | None = None) -> None:
        self.path = path
        self.steps: LoggedSteps | None = None
        self.lines = 0  # that were appended since it is followed; each state of a progress bar is one
        self.looked_s = -math.inf  # when the file could be looked at last, by the monotonic clock
        self.problem = ""  # why its steps cannot be read as they should, "" if they can
        self._reader = StepReader(pattern)
        self._series = StepSpikes()
        self._spikes: deque[tuple[float, Spike]] = deque(maxlen=16)
        self._tail = Tail(path, _CHUNK_BYTES)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"minder-log-{path.name}", daemon=True)

    def start(self) -> None:
        self._tail.open()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def forget(self) -> None:
        """The job began anew: its steps count from here."""
        self.steps = None
        self._series.forget()
        self._reader.forget()

    def take_spikes(self) -> list[tuple[float, Spike]]:
        """(when read, spike) of the loss and the gradient norm since the last call. Any thread."""
        return [self._spikes.popleft() for _ in range(len(self._spikes))]

    def poll(self, now_s: float) -> None:
        """Read what was appended since the last look; at most 256 KiB, the newest."""
        lines = self._tail.lines()
        self.lines += len(lines)
        if not self._tail.problem:
            self.looked_s = time.monotonic()
        for line in lines:
            found = self._reader.read(line, now_s)
            if found is not None:
                self._note(found, now_s)

    def describe(self) -> dict[str, Any]:
        """The file, what was read in it, and why not: lines that tell of training without a step are `unnumbered`."""
        problem = self.problem or self._tail.problem or ("" if self.path.exists() else "there is no such file")
        step = None if self.steps is None else self.steps.step
        return {"path": str(self.path), "lines": self.lines, "unnumbered": self._reader.unnumbered, "step": step, "problem": problem}

    def _note(self, found: StepLine, now_s: float) -> None:
        """A step below the newest one is a job that began again, from its checkpoint."""
        self._spikes.extend((now_s, spike) for spike in self._series.read(found.step, found.loss, found.grad_norm))
        known = self.steps
        loss = found.loss if found.loss is not None or known is None or found.step != known.step else known.loss
        if known is None or found.step < known.step:
            self.steps = LoggedSteps(found.step, now_s, found.step, now_s, loss)
        else:
            time_s = known.time_s if found.step == known.step else now_s
            self.steps = LoggedSteps(found.step, time_s, known.first_step, known.first_time_s, loss)

    def _run(self) -> None:
        while not self._stop.wait(_LOOK_S):
            self.poll(time.time())
        self._tail.close()
