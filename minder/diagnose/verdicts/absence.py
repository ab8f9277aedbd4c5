"""What no longer answers: silent machines, processes that vanished, launchers without workers (docs/recordings.md).

**Silent machines** (`AbsenceRule`). Absence accuses only with a second witness. Silent agent alone: nothing. Agent and launcher silent
while the peers stall, or while a peer reports the broken connection: gone. Of a job that is only watched there is no launcher to hear: an
agent that fell silent as the whole job stopped is a page. Peers that keep stepping acquit it. All silent, or about to be: the monitoring is
out, or the site, and a machine that went dark with it has a minute to come back after most others.

**Processes that vanish** (`VanishedRule`) from a job that is only watched, where no parent of ours sees how they end: which was first? If
they go together, the job ended. If one machine's go first by more than the sampling interval, a person should look there: an exit status is
mostly unknown, and what a first exit means is known to the job's own launcher only. Never an eviction. A machine whose agent fell silent
with them may have been before them all: then no other machine is named, and it is, if it is the only one.

**Launchers without workers** (`UnmannedRule`). Launchers are reachable and run nothing of the job: they were started again, and their
workers ended with the old ones. No exit is reported then: the launcher that would have reported it is gone too. If it is one machine, its
peers wait for it; if it is all of them (a site that was switched on again), nothing at all is left to stand still. The job is started
again; no machine is to blame for that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from minder.diagnose.job_mode.answers import is_watched
from minder.diagnose.job_mode.tracker import JobTracker
from minder.edge.signals.exceptions import ExceptionKind, classify_exception
from minder.model.evidence import Evidence, Signal, Suspect, Tier
from minder.model.observation import MachineView, Observation, RuleResult

__all__ = ["AbsenceRule", "UnmannedRule", "VanishedRule", "is_unmanned"]


class AbsenceRule:
    """Reads how long ago agents and launchers answered (observation.Rule), as long as they are silent. `tracker` is shared and updated."""

    name = "absence"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._named: list[tuple[str, ...]] = []  # machines that fell silent together
        self._generation = -1
        self._echo_s: float | None = None

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None or job.phase not in ("running", "starting"):
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._named, self._echo_s = job.generation, [], None
        self._note_echoes(observation)
        outage = self._tracker.outage
        silent = [machine for machine in self._tracker.silence.silent(observation) if machine not in outage.returning]
        if not silent or outage.lasts:
            return RuleResult()
        witness = self._witness(silent, observation)
        if not witness:
            return RuleResult()
        self._named = [group for group in self._named if set(group) <= set(silent)]
        new = tuple(machine for machine in silent if not any(machine in group for group in self._named))
        self._named += [new] if new else []
        return RuleResult(tuple(self._suspect(group, witness, observation) for group in self._named))

    def _note_echoes(self, observation: Observation) -> None:
        for signal in observation.signals:
            same = signal.generation == self._generation
            if same and signal.kind == "exception" and signal.data.get("victim") and self._echo_s is None:
                self._echo_s = signal.time_s

    def _witness(self, silent: Sequence[str], observation: Observation) -> str:
        stalled_s = self._tracker.stalled_s(observation)
        if stalled_s:
            return f"all its peers have stood still for {stalled_s:.1f} s"
        if is_watched(observation):
            return ""
        if self._echo_s is not None:
            return "a peer's connection broke"
        tracker, limits = self._tracker, self._tracker.limits
        standing_s = min(
            [tracker.steps.standing_s(observation.now_s), *(tracker.silence.seconds(machine, observation) for machine in silent)]
        )
        if standing_s > max(limits.in_phase_silent_s, 3 * tracker.steps.stall_limit_s()):
            if tracker.phases.phase:
                return f"its peers have been in {tracker.phases.phase} ever since"
            if not tracker.steps.reads_steps:  # too few yet to know a stall by
                return f"its peers have made no step for {tracker.steps.standing_s(observation.now_s):.0f} s"
        job = observation.job
        if job is not None and job.phase == "starting" and observation.now_s - job.generation_start_s > 3 * limits.silent_s:
            return "the generation cannot start without it"
        return ""

    def _suspect(self, machines: tuple[str, ...], witness: str, observation: Observation) -> Suspect:
        evidence = []
        since_s, watched = observation.now_s, is_watched(observation)
        who = "agent" if watched else "agent and launcher"
        for machine in machines:
            age_s = self._tracker.silence.seconds(machine, observation)
            since_s = min(since_s, observation.now_s - age_s)
            evidence.append(Evidence("fleet", machine, f"{who} silent for {age_s:.1f} s; {witness}", since_s=observation.now_s - age_s))
        kind: Literal["machine", "group"] = "machine" if len(machines) == 1 else "group"
        tier: Tier = "page" if watched else "evict"
        confidence = 0.8 if watched else 0.96
        return Suspect(observation.now_s, self.name, kind, machines, "absence", confidence, since_s, tier, tuple(evidence))


_SETTLE_S = 3.0  # what dies of the first one dies within this time
_SILENT_S, _BEFORE_S = 3.0, 30.0
_LATE_S = 1.5  # an agent that has not answered for so long may have died with its machine: that is seen a little later


@dataclass(frozen=True, slots=True)
class _Gone:
    machine: str
    time_s: float
    message: str
    bad: bool | None  # None: unknown how it ended
    kind: ExceptionKind = "unknown"  # of the exception that it left, where it left one


class VanishedRule:
    """Reads exit signals with `vanished` of the running generation (observation.Rule). interval_s: how often agents sample.

    A rank that left an exception of the program, or an echo, accuses no machine: the job is down.
    """

    name = "vanished"

    def __init__(self, tracker: JobTracker, interval_s: float = 1.0) -> None:
        self._interval_s = interval_s
        self._tracker = tracker
        self._silence = tracker.silence_after(max(_SILENT_S, 3 * interval_s))
        self._generation = -1
        self._gone: list[_Gone] = []
        self._reported = False

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._gone, self._reported = job.generation, [], False
        self._gone += [
            _read(signal)
            for signal in observation.signals
            if signal.kind == "exit"
            and signal.data.get("vanished")
            and signal.machine is not None
            and signal.generation == job.generation
            and signal.time_s >= job.generation_start_s
        ]
        failed = sorted((item for item in self._gone if item.bad is not False), key=lambda item: item.time_s)
        late = any(self._silence.seconds(machine, observation) > _LATE_S for machine in job.machines)
        settle_s = _SETTLE_S + (max(_SILENT_S, 3 * self._interval_s) if late else 0.0)
        if self._reported or not failed or observation.now_s - failed[0].time_s < settle_s:
            return RuleResult()
        self._reported = True
        silent = [machine for machine in self._silence.silent(observation) if self._may_be_first(machine, failed[0], observation)]
        suspect = self._lost(silent, failed, observation) if silent else self._suspect(failed, observation)
        return RuleResult((suspect,) if suspect is not None else ())

    def _suspect(self, failed: list[_Gone], observation: Observation) -> Suspect | None:
        """Processes that are seen to have failed are ordered by the kernel's word; all others by the sampling interval."""
        assert observation.job is not None
        failed = [item for item in failed if item.kind != "victim"] or failed
        first = failed[0]
        if first.kind in ("program", "victim"):
            return self._job_down(failed, observation)
        margin_s = (0.1 if first.bad else self._interval_s) + 2 * observation.clock_error_s
        others = [item for item in self._gone if item.machine != first.machine]
        together = [item for item in others if item.kind != "victim" and item.time_s - first.time_s <= margin_s]
        if together or len(observation.job.machines) < 2:
            return self._job_down(failed, observation) if any(item.bad for item in failed) else None
        evidence = [Evidence("exit", first.machine, f"vanished first: {first.message}", since_s=first.time_s)]
        for item in sorted(others, key=lambda item: item.time_s)[:5]:
            message = f"{item.time_s - first.time_s:+.1f} s later: {item.message}"
            evidence.append(Evidence("exit", item.machine, message, since_s=item.time_s))
        confidence = 0.6 if first.bad else 0.5
        return Suspect(
            observation.now_s, self.name, "machine", (first.machine,), "explicit", confidence, first.time_s, "page", tuple(evidence)
        )

    def _may_be_first(self, machine: str, first: _Gone, observation: Observation) -> bool:
        """A job without steps acquits no machine: then a silence that began long before the first exit is another matter."""
        if any(item.machine == machine for item in self._gone):
            return False
        since_s = observation.now_s - self._silence.seconds(machine, observation)
        return math.isfinite(self._tracker.steps.step) or since_s > first.time_s - _BEFORE_S

    def _lost(self, silent: list[str], failed: list[_Gone], observation: Observation) -> Suspect:
        if len(silent) > 1:
            return self._job_down(failed, observation)
        silent_s = self._silence.seconds(silent[0], observation)
        message = f"agent silent for {silent_s:.1f} s, since before {len(failed)} processes of its peers vanished or with them"
        evidence = (Evidence("fleet", silent[0], message, since_s=observation.now_s - silent_s),)
        return Suspect(observation.now_s, self.name, "machine", (silent[0],), "absence", 0.6, failed[0].time_s, "page", evidence)

    def _job_down(self, failed: list[_Gone], observation: Observation) -> Suspect:
        """They failed together, or there is only one machine: the job is down, and no machine was first."""
        evidence = tuple(Evidence("exit", item.machine, item.message, since_s=item.time_s) for item in failed[:8])
        return Suspect(observation.now_s, self.name, "job", (), "explicit", 0.5, failed[0].time_s, "page", evidence)


def _read(signal: Signal) -> _Gone:
    number, code = signal.data.get("signal"), signal.data.get("code")
    bad = True if number or code else False if code == 0 else None
    raised = signal.data.get("type")
    kind = classify_exception(str(raised), str(signal.data.get("error") or "")).kind if raised else "unknown"
    return _Gone(signal.machine or "", signal.time_s, signal.message, bad, kind)


_ANSWERS_S = 3.0
_RETURN_S = 60.0  # for so long those that are back wait for those that are not
_SHOWN = 8


class UnmannedRule:
    """Reads what launchers say of their workers while the job should run (observation.Rule), as long as it is so.

    limit_s: so long after the last exit or exception of the generation others may report first: they know which rank failed.
    """

    name = "unmanned"

    def __init__(self, limit_s: float = 5.0) -> None:
        self._limit_s = limit_s
        self._generation = -1
        self._since: dict[str, float] = {}
        self._heard_s = 0.0

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._since, self._heard_s = job.generation, {}, 0.0
        if any(signal.kind in ("exit", "exception") and signal.generation == job.generation for signal in observation.signals):
            self._heard_s = observation.now_s
        views = [(machine, observation.fleet.get(machine)) for machine in job.machines]
        empty = [machine for machine, view in views if job.phase in ("starting", "running") and is_unmanned(view)]
        self._since = {machine: self._since.get(machine, observation.now_s) for machine in empty}
        if not self._since:
            return RuleResult()
        since_s = min(self._since.values())
        wait_s = self._limit_s if all(_answers(view) for _, view in views) else _RETURN_S
        if observation.now_s - max(since_s, self._heard_s) < wait_s:
            return RuleResult()
        evidence = tuple(
            Evidence("fleet", machine, f"its launcher answers and runs no rank of generation {job.generation}", since_s=at_s)
            for machine, at_s in list(self._since.items())[:_SHOWN]
        )
        return RuleResult((Suspect(observation.now_s, self.name, "job", (), "explicit", 0.9, since_s, "evict", evidence),))


def is_unmanned(view: MachineView | None) -> bool:
    """Its launcher answers, and every slot stands at the barrier without a rank. A worker that ended, well or not, is another matter."""
    if view is None or not _answers(view) or not view.workers:
        return False
    return all(worker.state in ("starting", "waiting") and worker.rank is None for worker in view.workers)


def _answers(view: MachineView | None) -> bool:
    return view is not None and view.launcher_age_s is not None and view.launcher_age_s <= _ANSWERS_S
