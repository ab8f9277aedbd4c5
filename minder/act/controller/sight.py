"""Whether the job's steps are read. Where they are not, a hang is found late, and that is said within a minute."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minder.act.controller.state import JobState
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.observation import Observation
from minder.model.telemetry import Sample

__all__ = ["StepSight", "started_without_steps"]

_SAID_AFTER_S = 30.0
_LINES = "job_log_lines_total"
_HEARTBEAT = "call minder.heartbeat(step=...) in the training loop"
_PATTERN = "--step-pattern with a group `step` (job.toml: step_pattern)"


class StepSight:
    """`look` once a tick. trouble: one line with its remedy while no step of this generation has been read, "" otherwise.

    watched: somebody else starts the job, so its logs are followed only where an agent was told to.
    """

    def __init__(self, watched: bool) -> None:
        self.trouble = ""
        self._watched = watched
        self._generation = -1
        self._since_s = math.nan  # when its ranks were first seen at work
        self._lines: dict[str, float] = {}
        self._lines_before: dict[str, float] = {}

    def look(self, steady_s: float, observation: Observation, step: float, samples: Sequence[Sample]) -> str:
        """What is to be said now, "" for nothing. steady_s: a clock that nobody sets; step: the newest, infinite where none is known."""
        self._count(samples)
        generation = -1 if observation.job is None else observation.job.generation
        if generation != self._generation:
            self._lines_before = {} if self._generation < 0 else dict(self._lines)
            self._generation, self._since_s, self.trouble = generation, math.nan, ""
        if math.isnan(self._since_s) and _at_work(observation):
            self._since_s = steady_s
        if math.isfinite(step):
            return self._clear(step)
        if self.trouble or not steady_s - self._since_s >= _SAID_AFTER_S:
            return ""
        self.trouble = self._describe()
        return self.trouble

    def _clear(self, step: float) -> str:
        said, self.trouble = self.trouble, ""
        return f"steps are read: step {step:.0f}" if said else ""

    def _describe(self) -> str:
        start = f"no step has been read in the {_SAID_AFTER_S:.0f} s since the ranks began: until there is one, a hang is found late"
        remedy = f"right while a model loads or compiles; else {_HEARTBEAT}, or give {_PATTERN}"
        if not self._lines:
            follow = "no log is followed: minder watch --pids with --log PATH, minder agent --log PATH"
            return f"{start}; {follow}; or {_HEARTBEAT}" if self._watched else f"{start}; {remedy}"
        new = sum(count - self._lines_before.get(machine, 0.0) for machine, count in self._lines.items())
        return f"{start}; {max(0.0, new):.0f} lines of its logs were read, none of them has a step; {remedy}"

    def _count(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            count = sample.values.get(_LINES)
            if count is not None and math.isfinite(count):
                self._lines[sample.machine] = count


def started_without_steps(state: JobState, tracker: JobTracker, now_s: float) -> str:
    """One line where the generation is at work and has told no step, "" where it has, or still starts."""
    if state.phase != "starting" or state.first_step_seen or not state.rank_machine:
        return ""
    works = tracker.works_without_steps(state.generation_start_s, now_s)
    return f"generation {state.generation} is at work; no step of it is read" if works else ""


def _at_work(observation: Observation) -> bool:
    job = observation.job
    if job is None:
        return False
    views = [view for machine, view in observation.fleet.items() if machine in job.machines]
    return any(worker.state == "running" and worker.generation == job.generation for view in views for worker in view.workers)
