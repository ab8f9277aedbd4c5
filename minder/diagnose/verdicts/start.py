"""A generation that does not come to its first step.

The rules:

- A standby can be bad too, but to be new is no evidence: a second deadlock after a swap is the program's. The only new machine is evicted
  where something of its own speaks against it: its processes do not come up although all others run, stacks name it, or its connections
  do. Else, and where several are new or none, a person is paged.
- Where the generation before, with other machines, did not come to its first step either, no machine is named.
- Time counts from when all the others run: while a survivor still starts its worker, everybody waits for that one. How long is too long
  the job itself has shown: loading a checkpoint, building communicators and compiling take some jobs seconds, others minutes.
- A job that shows activity (`job_mode`) is at work on its start: it loads, compiles or prepares data. It is waited for half an hour.
"""

from __future__ import annotations

import math

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.absence import is_unmanned
from minder.diagnose.verdicts.flow_findings import find_broken, find_silent, find_unreached, find_unread
from minder.diagnose.verdicts.flows import data_flows
from minder.model.evidence import Evidence, Suspect
from minder.model.observation import Observation, RuleResult
from minder.model.telemetry import ConnectivityProbe

__all__ = ["StartRule"]

_TIMES = 3.0
_BUSY_S = 1800.0
_WITNESS_S = 20.0  # for so long stacks and connections are waited for
_MARGIN_S = 0.5


class StartRule:
    """Speaks once per generation (types.Rule).

    limit_s: the least time from when every machine that is not new runs its worker (the generation's start where no launcher reports
    workers) to the first step; three times what an earlier generation took, if that is more. first_limit_s: the same while no
    generation's start has been seen, and for workers that do not come to run at all.
    """

    name = "start"

    def __init__(self, tracker: JobTracker, limit_s: float = 25.0, first_limit_s: float = 180.0) -> None:
        self._tracker = tracker
        self._limit_s = limit_s
        self._first_limit_s = first_limit_s
        self._generation = -1
        self._before: frozenset[str] = frozenset()
        self._now: frozenset[str] = frozenset()
        self._ready_s = math.inf  # when all machines that are not new were first seen to run
        self._reported = False
        self._failed_with: frozenset[str] | None = None  # machines of a generation that never came to its first step
        self._asked_s = math.inf  # when witnesses were asked for
        self._against: list[Evidence] = []  # what speaks against the only new machine
        self._attempts: list[ConnectivityProbe] = []  # of this generation's machines to reach one another
        self._starting = False  # this generation was seen before its first step
        self._usual_s = math.nan  # the longest start so far, from ready to the first step

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None or not job.machines:
            return RuleResult()
        if job.generation != self._generation:
            self._failed_with = self._now if self._starting else None
            self._before, self._now = self._now, frozenset(job.machines)
            self._asked_s, self._against, self._attempts = math.inf, [], []
            self._generation, self._reported, self._ready_s, self._starting = job.generation, False, math.inf, False
        if job.phase != "starting" or self._tracker.steps.steps_in_generation > 0:
            self._learn(observation)
            return RuleResult()
        self._starting = True
        if self._reported:
            return RuleResult()
        idle = self._idle(observation)
        if not idle:
            self._ready_s = min(self._ready_s, observation.now_s if observation.fleet else job.generation_start_s)
        known = bool(self._before) and not idle and not math.isnan(self._usual_s)
        limit_s = max(self._limit_s, _TIMES * self._usual_s) if known else self._first_limit_s
        if observation.now_s - (job.generation_start_s if idle else self._ready_s) < limit_s:
            return RuleResult()
        new = tuple(self._new())
        if len(new) == 1 and not idle and self._failed_with in (None, self._now):
            self._weigh(new[0], observation)
            if not self._against and observation.now_s - self._asked_s < _WITNESS_S:
                return RuleResult((), frozenset({"stacks", "dumps", "flows", "reach"}))
        if not self._against and self._is_busy(observation):
            return RuleResult()
        self._reported = True
        return RuleResult((self._suspect(observation, idle),))

    def _is_busy(self, observation: Observation) -> bool:
        job, activity = observation.job, self._tracker.activity
        working = activity.is_known(observation.now_s) and self._tracker.quiet_s(observation) <= activity.limit_s()
        return working and job is not None and observation.now_s - job.generation_start_s < _BUSY_S

    def _weigh(self, new: str, observation: Observation) -> None:
        """Witnesses against the only new machine."""
        self._asked_s = min(self._asked_s, observation.now_s)
        view = observation.fleet.get(new)
        runs = view is not None and any(item.state == "running" and item.generation == self._generation for item in view.workers)
        if view is not None and not runs and not is_unmanned(view):  # a launcher that began again knows nothing of the generation
            self._against.append(Evidence("launcher", new, f"no worker of generation {self._generation} runs there, all others do"))
        for suspect in (item for statement in observation.statements if statement.source != "round" for item in statement.suspects):
            if suspect.machines == (new,) and suspect.kind == "machine":
                self._against += suspect.evidence
        series = data_flows(observation.flows)
        self._attempts += observation.attempts
        found = [*find_unread(series), *find_broken(series), *find_silent(series, _MARGIN_S)]
        found += find_unreached(new, self._attempts, series)
        if found and {item.machine for item in found} == {new}:
            self._against += [Evidence("flows", new, item.message) for item in found]

    def _learn(self, observation: Observation) -> None:
        if self._starting and observation.job is not None:
            since_s = self._ready_s if math.isfinite(self._ready_s) else observation.job.generation_start_s
            self._usual_s = max(observation.now_s - since_s, 0.0 if math.isnan(self._usual_s) else self._usual_s)
            self._starting = False

    def _new(self) -> frozenset[str]:
        return self._now - self._before if self._before else frozenset()

    def _idle(self, observation: Observation) -> list[str]:
        """Machines, other than new ones, of which no worker runs in this generation; none where no launcher reports workers."""
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
        if self._against:
            message += f", {observation.now_s - self._ready_s:.0f} s of them with all others running, and this is its only new machine"
            evidence = (Evidence("steps", new[0], message, since_s=since_s), *self._against)
            return Suspect(observation.now_s, self.name, "machine", new, "unknown", 0.75, since_s, "evict", evidence)
        if len(new) == 1 and not idle:
            message += f"; {new[0]} is its only new machine, and nothing else speaks against it"
        if idle:
            message += f"; no worker of it runs on {', '.join(idle)}"
        evidence = (Evidence("steps", None, message, since_s=since_s),)
        return Suspect(observation.now_s, self.name, "job", (), "unknown", 0.5, since_s, "page", evidence)
