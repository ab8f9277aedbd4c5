"""A generation that does not come to its first step: if exactly one machine is new in it, it is that one (a standby can be
bad too). Where several are new, or none, a person is told.
"""

from __future__ import annotations

from minder.types import Evidence, Observation, RuleResult, Suspect
from minder.verdicts.progress import Progress

__all__ = ["StartRule"]


class StartRule:
    """Speaks once per generation (types.Rule). `limit_s`: from the generation's start to its first step."""

    name = "start"

    def __init__(self, progress: Progress, limit_s: float = 25.0, first_limit_s: float = 180.0) -> None:
        self._progress = progress
        self._limit_s = limit_s
        self._first_limit_s = first_limit_s
        self._generation = -1
        self._before: frozenset[str] = frozenset()
        self._now: frozenset[str] = frozenset()
        self._told = False

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None or not job.machines:
            return RuleResult()
        if job.generation != self._generation:
            self._before, self._now = self._now, frozenset(job.machines)
            self._generation, self._told = job.generation, False
        first = not self._before
        waited_s = observation.now_s - job.generation_start_s
        if self._told or job.phase != "starting" or self._progress.steps_in_generation > 0:
            return RuleResult()
        if waited_s < (self._first_limit_s if first else self._limit_s):
            return RuleResult()
        self._told = True
        return RuleResult((self._suspect(observation, waited_s),))

    def _suspect(self, observation: Observation, waited_s: float) -> Suspect:
        assert observation.job is not None
        new = tuple(sorted(self._now - self._before)) if self._before else ()
        since_s = observation.job.generation_start_s
        if len(new) == 1:
            message = f"generation {self._generation} has not stepped for {waited_s:.0f} s, and this is its only new machine"
            evidence = (Evidence("steps", new[0], message, since_s=since_s),)
            return Suspect(observation.now_s, self.name, "machine", new, "unknown", 0.75, since_s, "evict", evidence)
        evidence = (Evidence("steps", None, f"generation {self._generation} has not stepped for {waited_s:.0f} s", since_s=since_s),)
        return Suspect(observation.now_s, self.name, "job", (), "unknown", 0.5, since_s, "page", evidence)
