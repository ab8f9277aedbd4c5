"""A generation that does not come to its first step: if exactly one machine is new in it, it is that one (a standby can be
bad too). Where several are new, or none, a person is told.

Time counts from when all the others run: while a survivor still starts its worker, everybody waits for that one. How long is too
long the job itself has shown: loading a checkpoint, building communicators and compiling take some jobs seconds, others minutes.
"""

from __future__ import annotations

import math

from minder.types import Evidence, Observation, RuleResult, Suspect
from minder.verdicts.progress import Progress

__all__ = ["StartRule"]

_TIMES = 3.0


class StartRule:
    """Speaks once per generation (types.Rule).

    limit_s: the least time from when every machine that is not new runs its worker (the generation's start where nobody tells of
    workers) to the first step; three times what an earlier generation took, if that is more. first_limit_s: the same while no
    generation's start has been seen, and for workers that do not come to run at all.
    """

    name = "start"

    def __init__(self, progress: Progress, limit_s: float = 25.0, first_limit_s: float = 180.0) -> None:
        self._progress = progress
        self._limit_s = limit_s
        self._first_limit_s = first_limit_s
        self._generation = -1
        self._before: frozenset[str] = frozenset()
        self._now: frozenset[str] = frozenset()
        self._ready_s = math.inf  # when all machines that are not new were first seen to run
        self._told = False
        self._starting = False  # this generation was seen before its first step
        self._usual_s = math.nan  # the longest start so far, from ready to the first step

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None or not job.machines:
            return RuleResult()
        if job.generation != self._generation:
            self._before, self._now = self._now, frozenset(job.machines)
            self._generation, self._told, self._ready_s, self._starting = job.generation, False, math.inf, False
        if job.phase != "starting" or self._progress.steps_in_generation > 0:
            self._learn(observation)
            return RuleResult()
        self._starting = True
        if self._told:
            return RuleResult()
        idle = self._idle(observation)
        if not idle:
            self._ready_s = min(self._ready_s, observation.now_s if observation.fleet else job.generation_start_s)
        known = bool(self._before) and not idle and not math.isnan(self._usual_s)
        limit_s = max(self._limit_s, _TIMES * self._usual_s) if known else self._first_limit_s
        if observation.now_s - (job.generation_start_s if idle else self._ready_s) < limit_s:
            return RuleResult()
        self._told = True
        return RuleResult((self._suspect(observation, idle),))

    def _learn(self, observation: Observation) -> None:
        if self._starting and observation.job is not None:
            since_s = self._ready_s if math.isfinite(self._ready_s) else observation.job.generation_start_s
            self._usual_s = max(observation.now_s - since_s, 0.0 if math.isnan(self._usual_s) else self._usual_s)
            self._starting = False

    def _new(self) -> frozenset[str]:
        return self._now - self._before if self._before else frozenset()

    def _idle(self, observation: Observation) -> list[str]:
        """Machines, other than new ones, of which no worker runs in this generation; none where nobody tells of workers."""
        if not observation.fleet:
            return []
        running = {
            machine
            for machine, view in observation.fleet.items()
            if any(worker.state == "running" and worker.generation == self._generation for worker in view.workers)
        }
        return sorted(self._now - self._new() - running)

    def _suspect(self, observation: Observation, idle: list[str]) -> Suspect:
        assert observation.job is not None
        new = tuple(sorted(self._new()))
        since_s = observation.job.generation_start_s
        message = f"generation {self._generation} has not stepped for {observation.now_s - since_s:.0f} s"
        if len(new) == 1 and not idle:
            message += f", {observation.now_s - self._ready_s:.0f} s of them with all others running, and this is its only new machine"
            evidence = (Evidence("steps", new[0], message, since_s=since_s),)
            return Suspect(observation.now_s, self.name, "machine", new, "unknown", 0.75, since_s, "evict", evidence)
        if idle:
            message += f"; no worker of it runs on {', '.join(idle)}"
        evidence = (Evidence("steps", None, message, since_s=since_s),)
        return Suspect(observation.now_s, self.name, "job", (), "unknown", 0.5, since_s, "page", evidence)
