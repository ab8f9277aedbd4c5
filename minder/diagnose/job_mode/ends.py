"""Whether workers of the running generation have ended by their launchers' own word, so that the job can make no step.

The rules:

- A worker that has ended stays so until another generation begins: also where its launcher falls silent then, or is started again.
- Its peers wait for it, unless they are seen to go on. What was under way when it ended may be heard of later and is no going on; more
  steps are: ranks that do not wait for each other make them, and those that end one after the other.
- It ended when its exit says, or else when it was first seen so.
- Where all that ended did so well, the others may still save: a phase that they declare is believed. After a failure it is not.
"""

from __future__ import annotations

import math

from minder.diagnose.job_mode.steps import StepClock
from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds
from minder.model.observation import Observation

__all__ = ["WorkerEnds"]


class WorkerEnds:
    """Feed it every observation once, after `steps`. since_s: since when the job cannot step for that, in unix seconds; None: no worker
    ended, or the others go on. failed: a worker ended otherwise than well."""

    def __init__(self, steps: StepClock, limits: Thresholds = THRESHOLDS) -> None:
        self._steps, self._limits = steps, limits
        self._generation = -1
        self._begin()

    def _begin(self) -> None:
        self._ended: set[tuple[str, int]] = set()  # machine and slot
        self._exit_s: dict[str, float] = {}  # machine to when a worker of it ended last, as its exit says
        self._step = -math.inf  # the job's newest step when it came to stand
        self.failed = False
        self.since_s: float | None = None

    def update(self, observation: Observation) -> None:
        job = observation.job
        if job is None:
            return
        if job.generation != self._generation:
            self._generation = job.generation
            self._begin()
        for signal in observation.signals:
            if signal.kind == "exit" and signal.generation == job.generation and signal.machine in job.machines:
                self._exit_s[signal.machine] = signal.time_s
                self.failed = self.failed or signal.data.get("code") != 0
        if self._steps.step > self._step + self._limits.under_way_steps:
            self.since_s = None
        for machine in job.machines:
            view = observation.fleet.get(machine)
            workers = () if view is None else view.workers
            gone = {(machine, item.slot) for item in workers if item.has_ended and item.generation == job.generation}
            if gone - self._ended and self.since_s is None:
                self.since_s, self._step = self._exit_s.get(machine, observation.now_s), self._steps.step
            self._ended |= gone

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self._exit_s = {machine: time_s + by_s for machine, time_s in self._exit_s.items()}
        self.since_s = None if self.since_s is None else self.since_s + by_s
