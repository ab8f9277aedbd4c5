"""What of a job's work is saved, what a restart costs, and what is left to do."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from minder.act.policy.context import Sizes
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.errors import CheckpointError

__all__ = ["CheckpointLook", "JobWork", "remaining_s", "restart_s", "unsaved_s"]

_FOLDER_ANSWERS_S = 2.0  # a file server that hangs may be the very trouble that is to be decided on
_SHORTEST_RESTART_S = 10.0


class JobWork:
    """What of the job's work is saved in `checkpoint_dir` (None: unknown where), where checkpoints lie ("shared", "local" to each machine,
    "memory": every step, at peers), and the step at which the job is done (None: unknown). sizes: how small the job may become (None: it
    keeps its size). any_size: whether its checkpoints are read at another size; None: as they say themselves."""

    def __init__(
        self, checkpoint_dir: str | None, total_steps: int | None = None, checkpoints: str = "shared", sizes: Sizes | None = None,
        any_size: bool | None = None,
    ) -> None:  # fmt: skip
        self.checkpoints = CheckpointLook(checkpoint_dir)
        self.total_steps = total_steps
        self.is_local = checkpoints == "local"
        self.in_memory = checkpoints == "memory"
        self._sizes, self._any_size = sizes, any_size

    def sizes(self) -> Sizes | None:
        """With why the job must keep its size now, if it must."""
        if self._sizes is None or self._any_size is True:
            return self._sizes
        if self._any_size is False:
            return replace(self._sizes, refused="checkpoints_any_size = false in job.toml")
        return replace(self._sizes, refused=self.checkpoints.why_same_size())

    def unsaved_s(self, tracker: JobTracker, assumed_s: float) -> float:
        """Seconds of work that a restart would lose: of a job that keeps every step in memory, one step."""
        if self.in_memory and math.isfinite(tracker.steps.typical_s):
            return tracker.steps.typical_s
        return unsaved_s(tracker, self.checkpoints.newest_step, assumed_s)


class CheckpointLook:
    """The step of the newest complete checkpoint in a folder, and whether another number of ranks can read it; what was known before,
    where the folder does not answer in time."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._step: int | None = None
        self._written_by: list[tuple[int, int]] | None = None
        self._saved: tuple[tuple[int, str], ...] | None = None
        self._same_size = "where the job saves is not known: set checkpoint_dir, or checkpoints_any_size"
        if folder is not None:
            self._same_size = f"its checkpoints in {folder} could not be looked at yet"
        self._thread: threading.Thread | None = None

    def newest_step(self) -> int | None:
        """None: no complete checkpoint is known."""
        self._look()
        return self._step

    def written_by(self) -> list[tuple[int, int]] | None:
        """(step, number of the version that wrote it) of each complete checkpoint, newest first; None where that is not known."""
        self._look()
        return self._written_by

    def saved(self) -> tuple[tuple[int, str], ...] | None:
        """(step, batches that its run left out) of each complete checkpoint of minder's; None where that is not known, or others wrote
        there: theirs do not say which batches they have learned from. As of the last look."""
        if self._thread is None:
            self._look()
        return self._saved

    def why_same_size(self) -> str:
        """Why the job cannot be resumed by another number of ranks, "" if it can; as of the last look."""
        if self._thread is None:
            self._look()
        return self._same_size

    def _look(self) -> None:
        if self._folder is None:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._read, args=(self._folder,), name="minder-checkpoints", daemon=True)
            self._thread.start()
            self._thread.join(_FOLDER_ANSWERS_S)

    def _read(self, folder: Path) -> None:
        from minder.edge.checkpoint.manifest import complete_checkpoints, why_same_size
        from minder.edge.checkpoint.site import newest_site_step, site_checkpoints

        try:
            found = complete_checkpoints(folder)
            self._written_by = [(item.step, item.update) for item in found]
            known = bool(found) or not (folder.is_dir() and site_checkpoints(folder))
            self._saved = tuple((item.step, item.skipped) for item in found) if known else None
            self._step, self._same_size = newest_site_step(folder) if folder.is_dir() else None, why_same_size(folder)
        except (CheckpointError, OSError) as error:
            self._same_size = f"its checkpoints in {folder} cannot be looked at: {error}"


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


def remaining_s(tracker: JobTracker, total_steps: int | None, now_s: float) -> float | None:
    """Seconds: the steps that are left, each as long as a step takes at present, and never less than one took while the job was well.

    None where it cannot be known: no declared total, a job that has gone beyond it (the number is wrong), fewer than five steps timed.
    """
    left = math.nan if total_steps is None else total_steps - tracker.steps.step
    typical_s = tracker.steps.typical_s
    if not math.isfinite(left) or left < 0 or not math.isfinite(typical_s):
        return None
    recent_s = tracker.steps.recent_s(now_s, tracker.limits.recent_s)
    return left * (max(typical_s, recent_s) if math.isfinite(recent_s) else typical_s)
