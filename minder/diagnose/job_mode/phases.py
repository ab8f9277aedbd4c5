"""Phases that the job declares: checkpoint, evaluation, compile, restart. Silence in them means nothing.

`DeclaredPhases` hears launchers' heartbeat pages and agents' signals, for the job's steps. A phase may lie in another one (a checkpoint
inside an evaluation): the outer one lasts on when the inner one ends, and ends it with itself.

`IdlePhases` hears signals alone, for telemetry: levels move when a phase begins, and come back one by one after it. A phase that machines
tell one by one is open while half of those that began it are in it: who is left alone in it hangs.
"""

from __future__ import annotations

import math
from collections import defaultdict

from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds
from minder.model.evidence import Signal
from minder.model.observation import MachineView, Observation

__all__ = ["QUIET_PHASES", "DeclaredPhases", "IdlePhases"]

QUIET_PHASES = ("checkpoint", "evaluation", "compile", "restart")


class DeclaredPhases:
    """The phase of the running generation. Feed it every observation once. Times are unix seconds."""

    def __init__(self, limits: Thresholds = THRESHOLDS) -> None:
        self._limits = limits
        self.phase = ""  # the innermost that is open; "": none
        self.since_s = math.nan
        self.saved_s = math.nan  # end of the generation's last declared checkpoint
        self.heard_s = -math.inf  # the newest word of a phase in this observation
        self.has_ended = False  # the last open phase ended with this observation
        self._open: dict[str, list[str]] = {}  # machine to the phases that its agent reported, the outermost first

    def update(self, observation: Observation) -> None:
        """Phases of this generation only: one that dangles from an earlier one neither protects nor accuses anybody.

        A machine whose launcher reports its workers is believed by that: an agent that dies never reports a phase's end. A worker that has
        ended is in no phase, whatever it declared last.
        """
        job = observation.job
        started_s = job.generation_start_s if job is not None else -math.inf
        self.heard_s = -math.inf
        for signal in observation.signals:
            if _is_quiet(signal) and signal.time_s >= started_s:
                self._hear(signal)
        views = [view for machine, view in observation.fleet.items() if job is None or machine in job.machines]
        fresh = [view for view in views if _age_s(view) < self._limits.heard_s]
        workers = [worker for view in fresh for worker in view.workers if job is None or worker.generation == job.generation]
        reported_by_launcher = {view.machine for view in views if view.workers}
        open_now = [worker.phase or "" for worker in workers if worker.phase in QUIET_PHASES and not worker.has_ended]
        open_now += [phases[-1] for machine, phases in self._open.items() if machine not in reported_by_launcher]
        self.has_ended = bool(self.phase) and not open_now
        if self.has_ended:
            self.saved_s = observation.now_s if self.phase == "checkpoint" else self.saved_s
        if open_now and not self.phase:
            self.since_s = observation.now_s
        self.phase = open_now[0] if open_now else ""

    def lasts(self, now_s: float) -> bool:
        """A phase is declared, and not for too long."""
        return bool(self.phase) and now_s - self.since_s < self._limits.phase_limit_s

    def restart(self) -> None:
        """Another generation begins."""
        self.phase, self.saved_s, self._open = "", math.nan, {}

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much."""
        self.since_s += by_s
        self.saved_s += by_s

    def _hear(self, signal: Signal) -> None:
        """Who begins a phase again, or ends one, has left what lay in it."""
        machine, phase = signal.machine or "", str(signal.data["phase"])
        inside = self._open.pop(machine, [])
        kept = inside[: inside.index(phase)] if phase in inside else inside
        if signal.data.get("state") == "begin":
            kept = [*kept, phase]
        elif phase == "checkpoint":
            self.saved_s = signal.time_s if math.isnan(self.saved_s) else max(self.saved_s, signal.time_s)
        if kept:
            self._open[machine] = kept
        self.heard_s = max(self.heard_s, signal.time_s)


class IdlePhases:
    """Whether telemetry of a job says nothing new, since a phase moves the levels of all. Times are unix seconds."""

    def __init__(self, limits: Thresholds = THRESHOLDS) -> None:
        self._limits = limits
        self.began_s = self._ended_s = -math.inf  # of the newest phase
        self._open: dict[str, dict[str, float]] = defaultdict(dict)  # phase to machine ("": the job) to when it began
        self._members: dict[str, set[str]] = defaultdict(set)  # phase to all who are or were in it this time
        self._longest_s: dict[str, float] = {}

    def update(self, observation: Observation) -> None:
        for signal in observation.signals:
            if _is_quiet(signal):
                self._note(str(signal.data["phase"]), signal)

    def is_quiet(self, now_s: float) -> bool:
        """In a phase, or so soon after one that levels have not settled."""
        lasting = any(self._lasts(phase, now_s) for phase in self._open)
        return lasting or (now_s - self._ended_s < self._limits.phase_settle_s and not any(self._open.values()))

    def _note(self, phase: str, signal: Signal) -> None:
        machine, inside = signal.machine or "", self._open[phase]
        if signal.data.get("state") == "begin":
            if not inside:
                self._members[phase] = set()
            if not any(self._open.values()):
                self.began_s = signal.time_s
            inside[machine] = signal.time_s
            self._members[phase].add(machine)
        elif machine in inside:
            lasted_s = signal.time_s - inside.pop(machine)
            self._longest_s[phase] = max(self._longest_s.get(phase, 0.0), lasted_s)
            self._ended_s = signal.time_s

    def _lasts(self, phase: str, now_s: float) -> bool:
        inside, limits = self._open[phase], self._limits
        if not inside or 2 * len(inside) < len(self._members[phase]):
            return False
        longest_s = self._longest_s.get(phase)
        least_s, most_s = limits.least_phase_s, limits.most_phase_s
        patience_s = limits.unknown_phase_s if longest_s is None else min(most_s, max(least_s, limits.phase_times * longest_s))
        return now_s - min(inside.values()) <= patience_s


def _is_quiet(signal: Signal) -> bool:
    return signal.kind == "phase" and signal.data.get("phase") in QUIET_PHASES


def _age_s(view: MachineView) -> float:
    """Since it was last heard who speaks for the workers: the launcher, or the agent of a job that we only watch."""
    age_s = view.agent_age_s if view.launcher_age_s is None else view.launcher_age_s
    return math.inf if age_s is None else age_s
