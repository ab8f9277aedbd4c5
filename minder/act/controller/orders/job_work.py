"""What of a job's work is saved, what a restart costs, and what is left to do."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from minder.act.policy.context import Sizes
from minder.diagnose.job_mode.tracker import JobTracker
from minder.edge.cache.members import Kept
from minder.model.errors import CheckpointError, WireError
from minder.wire.codec import from_json

__all__ = ["CheckpointLook", "JobWork", "kept_in_memory", "remaining_s", "restart_s", "unsaved_s"]

_FOLDER_ANSWERS_S = 2.0  # a file server that hangs may be the very trouble that is to be decided on
_SHORTEST_RESTART_S = 10.0
_UNTIL_ENDED_S = 20.0  # from a look at what memory keeps until the workers have ended: evidence is captured between
States = Iterable[Mapping[str, Any]]


class JobWork:
    """What of the job's work is saved in `checkpoint_dir` (None: unknown where), where checkpoints lie ("shared", "local" to each machine,
    "memory": at peers), and the step at which the job is done (None: unknown). sizes: how small the job may become (None: it
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

    def saved(self, states: States) -> tuple[tuple[int, str], ...] | None:
        """(step, batches that its run left out) of what the job could go on from; None where that is not known. states: what its launchers
        say, with what their caches keep."""
        if self.is_local:
            return None
        in_folder = self.checkpoints.saved()
        kept = kept_in_memory(states) if self.in_memory else None
        if kept is None:
            return (in_folder or None) if self.in_memory else in_folder
        return (*((each.step, each.skipped) for each in kept), *(in_folder or ()))

    def written_by(self, states: States) -> list[tuple[int, int]] | None:
        """(step, number of the version that wrote it) of the same, the newest of memory first."""
        in_folder = self.checkpoints.written_by()
        kept = kept_in_memory(states) if self.in_memory else None
        if kept is None:
            return (in_folder or None) if self.in_memory else in_folder
        return [*((each.step, each.update) for each in kept), *(in_folder or ())]

    def unsaved_s(self, tracker: JobTracker, assumed_s: float, states: States = ()) -> float:
        """Seconds of work that a restart would lose: of a job that keeps its steps in memory, those since the newest that its caches hold,
        and one step at least; where they do not say, one. states: as in `saved`."""
        if self.in_memory and math.isfinite(tracker.steps.typical_s):
            kept = kept_in_memory(states)
            since = tracker.steps.step - kept[0].step if kept else 1.0
            return max(1.0, since if math.isfinite(since) else 1.0) * tracker.steps.typical_s
        return unsaved_s(tracker, self.checkpoints.newest_step, assumed_s)


def kept_in_memory(states: States) -> list[Kept] | None:
    """Steps that the job's caches keep, newest first: the newest one, and those before it that will still be there when the workers have
    ended, since a job that trains on pushes the oldest out. None where no launcher says. A cache that came later has fewer, and does not
    count: what the others committed all ranks had twice."""
    rings = [*filter(None, map(_ring, states))]
    if not rings:
        return None
    longest = max(len(ring) for ring, _ in rings)
    full = [(ring, now_s) for ring, now_s in rings if len(ring) == longest]
    common = set.intersection(*({(each.step, each.generation) for each in ring} for ring, _ in full))
    ring, now_s = max(full, key=lambda each: [(kept.generation, kept.step) for kept in each[0][:1]])
    there = [each for place, each in enumerate(ring) if place and (each.step, each.generation) in common and _lasts(ring, place, now_s)]
    return [*ring[:1], *there]


def _ring(state: Mapping[str, Any]) -> tuple[list[Kept], float] | None:
    """What one launcher says, and its clock. What is none of this protocol is not known."""
    try:
        return from_json(list[Kept], state["kept"]), float(state.get("now_s") or 0.0)
    except (KeyError, ValueError, TypeError, WireError):
        return None


def _lasts(ring: list[Kept], place: int, now_s: float) -> bool:
    """At its present pace; one that stands still keeps all that it has."""
    step_s = (ring[0].time_s - ring[-1].time_s) / (len(ring) - 1)
    return now_s - ring[0].time_s > _UNTIL_ENDED_S + 2 * step_s or (len(ring) - 1 - place) * step_s >= _UNTIL_ENDED_S


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
        from minder.edge.cache.folder import complete_steps
        from minder.edge.checkpoint.manifest import complete_checkpoints, why_same_size
        from minder.edge.checkpoint.site import newest_site_step, site_checkpoints

        try:
            found = complete_checkpoints(folder)
            flushed = [Kept(item.name.step, item.name.generation, item.update, item.skipped) for item in complete_steps(folder)]
            kept = [*(Kept(item.step, item.generation, item.update, item.skipped) for item in found), *flushed]
            self._written_by = [(item.step, item.update) for item in kept]
            known = bool(kept) or not (folder.is_dir() and site_checkpoints(folder))
            self._saved = tuple((item.step, item.skipped) for item in kept) if known else None
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
