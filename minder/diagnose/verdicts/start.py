"""A generation that does not come to its first step.

The rules:

- A machine that is cut off from its peers, or whose connections no kernel acknowledges, is named whether it is new or not, and however
  often the start failed before: no slow start and no program looks like that. Connections are looked at from `_LOOKS_S` on, again and
  again while the start lasts, and two looks must say the same. So is one whose process is stopped: it does not run while its peers' do,
  and leaves data unread or is named by stacks, when the start takes too long.
- A standby can be bad too, but to be new is no evidence: a second deadlock after a swap is the program's. The only new machine is evicted
  where something of its own speaks against it: its processes do not come up although all others run, stacks name it, or its connections
  do. Else, and where several are new or none, a person is paged.
- Where the generation before, with other machines, did not come to its first step either, no machine is named for being slow to start.
- Time counts from when all the others run: while a survivor still starts its worker, everybody waits for that one. How long is too long
  the job itself has shown: loading a checkpoint, building communicators and compiling take some jobs seconds, others minutes.
- A job that shows activity (`job_mode`) is at work on its start: it loads, compiles or prepares data. It is waited for half an hour.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.absence import is_unmanned
from minder.diagnose.verdicts.flows import (
    FlowFinding,
    Series,
    data_flows,
    find_broken,
    find_cut_off,
    find_silent,
    find_unreached,
    find_unread,
    fuse_findings,
)
from minder.diagnose.verdicts.stall import find_frozen
from minder.model.evidence import Evidence, Suspect
from minder.model.observation import Observation, RequestKind, RuleResult
from minder.model.telemetry import ConnectivityProbe, Flow

__all__ = ["StartRule"]

_TIMES = 3.0
_BUSY_S = 1800.0
_WITNESS_S = 20.0  # for so long stacks and connections are waited for
_MARGIN_S = 0.5
_LOOKS_S = 10.0  # after all run: when connections are looked at first, and between two looks; later half of the time so far
_HELD_S = 2.0  # two looks that say the same are so far apart: a network that is back by then has no dead link
_RECENT_S = 15.0  # of connections and tries that are weighed together
_SURE = 0.7  # of a machine's connections, as in a stall


class _Links:
    """Which machine the generation's connections show to be cut off. `hear` every observation while it starts."""

    def __init__(self) -> None:
        self.findings: list[FlowFinding] = []  # of the machine that is cut off, as the newest look has it
        self._flows: deque[Flow] = deque(maxlen=200_000)
        self._attempts: deque[ConnectivityProbe] = deque(maxlen=20_000)
        self._heard_s = -math.inf
        self._lead: tuple[str, float] | None = None  # whom the last looks name, and since when
        self._unreached = False  # the newest look has tries that failed: the next one shows who reaches whom

    def hear(self, observation: Observation) -> None:
        if not observation.flows and not observation.attempts:
            return
        self._flows.extend(observation.flows)
        self._attempts.extend(observation.attempts)
        self._heard_s = observation.now_s
        self._unreached = any(not item.reached for item in observation.attempts)
        series = self.series(observation.now_s)
        recent = [item for item in self._attempts if item.time_s > observation.now_s - _RECENT_S]
        found = [*find_broken(series), *find_cut_off(recent, series)]
        ranked = fuse_findings(found)
        clear = bool(ranked) and (len(ranked) == 1 or (1 - ranked[0][1]) < 0.5 * (1 - ranked[1][1]))
        name = ranked[0][0] if clear and ranked[0][1] >= _SURE else None
        since_s = self._lead[1] if self._lead is not None and self._lead[0] == name else observation.now_s
        self._lead = None if name is None else (name, since_s)
        self.findings = [item for item in found if item.machine == name]

    def series(self, now_s: float) -> Series:
        """The newest look at the connections."""
        return data_flows(flow for flow in self._flows if flow.time_s > now_s - _RECENT_S)

    def attempts(self) -> list[ConnectivityProbe]:
        return list(self._attempts)

    def cut_off(self) -> str | None:
        """The machine that looks some time apart agree on."""
        return self._lead[0] if self._lead is not None and self._heard_s - self._lead[1] >= _HELD_S else None

    def is_due(self, now_s: float, waited_s: float) -> bool:
        """Whether connections are to be looked at, so long after all were seen to run."""
        soon = self._lead is not None or self._unreached
        return waited_s >= _LOOKS_S and (soon or now_s - self._heard_s >= max(_LOOKS_S, waited_s / 2))


class StartRule:
    """Speaks once per generation of what took too long, and once of a machine that is cut off (observation.Rule).

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
        self._links = _Links()
        self._named: Suspect | None = None  # said again as long as the start lasts: the job has not recovered
        self._stacks: dict[str, Evidence] = {}  # machine to what stacks say against it, in this generation
        self._starting = False  # this generation was seen before its first step
        self._usual_s = math.nan  # the longest start so far, from ready to the first step

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None or not job.machines:
            return RuleResult()
        if job.generation != self._generation:
            self._failed_with = self._now if self._starting else None
            self._before, self._now = self._now, frozenset(job.machines)
            self._asked_s, self._against, self._links, self._named, self._stacks = math.inf, [], _Links(), None, {}
            self._generation, self._reported, self._ready_s, self._starting = job.generation, False, math.inf, False
        if job.phase != "starting" or self._tracker.steps.steps_in_generation > 0:
            self._learn(observation)
            return RuleResult()
        self._starting = True
        if self._named is not None:
            return RuleResult((replace(self._named, time_s=observation.now_s),))
        idle = self._idle(observation)
        if not idle:
            self._ready_s = min(self._ready_s, observation.now_s if observation.fleet else job.generation_start_s)
        self._hear(observation)
        self._named = self._cut_off(observation)
        if self._named is not None:
            return RuleResult((self._named,))
        requests = self._looks(observation)
        known = bool(self._before) and not idle and not math.isnan(self._usual_s)
        limit_s = max(self._limit_s, _TIMES * self._usual_s) if known else self._first_limit_s
        if self._reported or observation.now_s - (job.generation_start_s if idle else self._ready_s) < limit_s:
            return RuleResult((), requests)
        self._named = self._stopped(observation)
        if self._named is not None:
            return RuleResult((self._named,))
        new = tuple(self._new())
        if len(new) == 1 and not idle and self._failed_with in (None, self._now):
            self._weigh(new[0], observation)
            if not self._against and observation.now_s - self._asked_s < _WITNESS_S:
                return RuleResult((), frozenset({"stacks", "dumps", "flows", "reach"}))
        if not self._against and self._is_busy(observation):
            return RuleResult((), requests)
        self._reported = True
        return RuleResult((self._suspect(observation, idle),))

    def _hear(self, observation: Observation) -> None:
        """What connections and stacks say of this generation."""
        self._links.hear(observation)
        for suspect in (item for statement in observation.statements if statement.source != "round" for item in statement.suspects):
            if suspect.kind == "machine" and suspect.evidence:
                self._stacks |= dict.fromkeys(suspect.machines[:1], suspect.evidence[0])

    def _looks(self, observation: Observation) -> frozenset[RequestKind]:
        """Connections are looked at long before the start takes too long; stacks too, where a process does not run."""
        waited_s = observation.now_s - self._ready_s
        wanted: set[RequestKind] = {"flows", "reach"} if self._links.is_due(observation.now_s, waited_s) else set()
        return frozenset(wanted | {"stacks"}) if waited_s >= _LOOKS_S and find_frozen(observation) else frozenset(wanted)

    def _cut_off(self, observation: Observation) -> Suspect | None:
        machine = self._links.cut_off()
        if machine is None or machine not in self._now:
            return None
        found = self._links.findings
        confidence = max(sure for _, sure in fuse_findings(found))
        return self._accuse(machine, [Evidence("flows", machine, item.message) for item in found], confidence, observation)

    def _stopped(self, observation: Observation) -> Suspect | None:
        """The one machine whose process is stopped, by its peers' data or by stacks too: a long compilation holds up only its ticks."""
        unread = {item.machine: item for item in find_unread(self._links.series(observation.now_s))}
        for item in find_frozen(observation):
            second = Evidence("flows", item.machine, unread[item.machine].message) if item.machine in unread else None
            second = second or self._stacks.get(item.machine)
            if second is not None:
                return self._accuse(item.machine, [Evidence("liveness", item.machine, item.message), second], item.weight, observation)
        return None

    def _accuse(self, machine: str, evidence: list[Evidence], confidence: float, observation: Observation) -> Suspect:
        assert observation.job is not None
        since_s = observation.job.generation_start_s
        message = f"generation {self._generation} has not stepped for {observation.now_s - since_s:.0f} s"
        said = tuple(replace(item, since_s=since_s) for item in evidence)
        whole = (Evidence("steps", None, message, since_s=since_s), *said)
        return Suspect(observation.now_s, self.name, "machine", (machine,), "stall", confidence, since_s, "evict", whole)

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
        if new in self._stacks:
            self._against.append(self._stacks[new])
        series = data_flows(observation.flows)
        found = [*find_unread(series), *find_broken(series), *find_silent(series, _MARGIN_S)]
        found += find_unreached(new, self._links.attempts(), series)
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
