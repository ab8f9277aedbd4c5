"""What a restart would cost this job: how long it takes, and the work that no checkpoint holds."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from pathlib import Path

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.errors import CheckpointError

__all__ = ["CheckpointLook", "restart_s", "unsaved_s"]

_PATIENCE_S = 2.0  # a file server that hangs may be the very trouble that is to be decided on
_SHORTEST_RESTART_S = 10.0


class CheckpointLook:
    """The step of the newest complete checkpoint in a folder; what was known before, where the folder does not answer in time."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._step: int | None = None
        self._thread: threading.Thread | None = None

    def newest_step(self) -> int | None:
        """None: no complete checkpoint is known."""
        if self._folder is None:
            return None
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._read, args=(self._folder,), name="minder-checkpoints", daemon=True)
            self._thread.start()
            self._thread.join(_PATIENCE_S)
        return self._step

    def _read(self, folder: Path) -> None:
        from minder.edge.checkpoint.manifest import complete_checkpoints

        try:
            found = complete_checkpoints(folder)
        except (CheckpointError, OSError):
            return
        self._step = found[0].step if found else None


def unsaved_s(tracker: JobTracker, newest_step: Callable[[], int | None], assumed_s: float) -> float:
    """Seconds of work since the newest checkpoint: from its manifest, else since the end of the last declared checkpoint phase, else
    `assumed_s`. Time in which the job stood is no work."""
    saved_step = newest_step()
    if saved_step is not None and math.isfinite(tracker.steps.step):
        step_s = tracker.steps.typical_s
        return max(0.0, tracker.steps.step - saved_step) * (step_s if math.isfinite(step_s) else 1.0)
    if math.isfinite(tracker.phases.saved_s) and math.isfinite(tracker.steps.advanced_s):
        return max(0.0, tracker.steps.advanced_s - tracker.phases.saved_s)
    return assumed_s


def restart_s(tracker: JobTracker, generation_start_s: float) -> float:
    """As long as the present generation took to its first step, and at least ten seconds."""
    if tracker.steps.first is None:
        return _SHORTEST_RESTART_S
    return max(_SHORTEST_RESTART_S, tracker.steps.first[1] - generation_start_s)
