"""Does the job step, and how fast? Shared by the rules for stalls, slowness and absence.

Progress is the newest step that any rank reported, from telemetry (`steps_total`) or from the launchers' view of the
heartbeat pages: a hang with progress in any rank is not a hang.

Where no step is read, what telemetry shows of the job's activity stands for it (`activity.py`): the job stalls once it has been at
work, has been quiet for too long, and its ranks' stacks were the same in two captures since. Stacks that change are progress too.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from minder.diagnose.verdicts.activity import Activity
from minder.model.observation import MachineView, Observation

__all__ = ["Progress"]

_WARM_UP_STEPS = 2  # of each generation: compilation, first all-reduce, lazy initialisation
_PHASE_LIMIT_S = 3600.0  # a declared phase that lasts longer than this is a hang inside it
_FRESH_S = 5.0  # what a launcher said longer ago says nothing of the present
QUIET_PHASES = ("checkpoint", "evaluation", "compile", "restart")


class Progress:
    """Feed it every observation once; read the fields afterwards. Times are unix seconds."""

    def __init__(self, min_stall_s: float = 3.0) -> None:
        self.min_stall_s = min_stall_s
        self.step: float = -math.inf
        self.advanced_s: float = math.nan
        self.generation = -1
        self.steps_in_generation = 0
        self.phase = ""
        self.phase_since_s = math.nan
        self.saved_s = math.nan  # end of the generation's last declared checkpoint
        self.activity = Activity()
        self.stood_s = -math.inf  # when stacks last were the same in two captures
        self.still_s = -math.inf  # when two captures were last compared, whatever came of it
        self.by_machine: dict[str, float] = {}
        self.first: tuple[float, float] | None = None  # (step, time) of the generation's first step
        self._first_step: float = math.nan
        self._durations: deque[tuple[float, float]] = deque(maxlen=400)  # (at, seconds per step), healthy steps only
        self._recent: deque[tuple[float, float]] = deque(maxlen=400)
        self._gaps: deque[tuple[float, float]] = deque(maxlen=400)  # (at, seconds since the newest step before): a log may tell every tenth
        self._open: dict[str, str] = {}  # machine to the phase that its agent told of

    def update(self, observation: Observation) -> None:
        job = observation.job
        if job is not None and job.generation != self.generation:
            self._start_generation(job.generation)
        self._read_phase(observation)
        self._follow_activity(observation)
        newest, at_s = self._newest(observation)
        if newest > self.step:
            self._advance(newest, at_s)

    @property
    def typical_s(self) -> float:
        """Median step time while the job was well, NaN before there are five."""
        if len(self._durations) < 5:
            return math.nan
        return float(np.median([seconds for _, seconds in self._durations]))

    @property
    def p99_s(self) -> float:
        if len(self._durations) < 5:
            return math.nan
        return float(np.quantile([seconds for _, seconds in self._durations], 0.99))

    def recent_s(self, now_s: float, horizon_s: float) -> float:
        """Median step time over the last `horizon_s`; a step that is still open counts with its age. NaN without any."""
        seconds = [value for at_s, value in self._recent if at_s > now_s - horizon_s]
        if self._recent and now_s - self.advanced_s > max([self.typical_s, self._usual_gap_s(), *seconds]):
            seconds.append(now_s - self.advanced_s)
        return float(np.median(seconds)) if seconds else math.nan

    def stall_limit_s(self) -> float:
        """Silence longer than this is a stall: three times the job's own P99 step, and at least `min_stall_s`. A job whose log
        tells of every tenth step is silent in between."""
        p99_s = self.p99_s
        return self.min_stall_s if math.isnan(p99_s) else max(self.min_stall_s, 3.0 * p99_s, 1.5 * self._usual_gap_s())

    def _usual_gap_s(self) -> float:
        """How long it mostly takes until a newer step is told of; 0 before there are five."""
        return 0.0 if len(self._gaps) < 5 else float(np.quantile([seconds for _, seconds in self._gaps], 0.95))

    @property
    def reads_steps(self) -> bool:
        """Whether the generation's steps are known, past its warm-up."""
        return self.steps_in_generation > _WARM_UP_STEPS

    def stalled_s(self, observation: Observation) -> float:
        """Seconds beyond which nobody stepped; 0 while the job steps, starts, recovers or is in a declared phase. Without steps: seconds
        without any activity, once stacks have shown that nothing moves."""
        if not self.reads_steps:
            quiet_s = self.quiet_s(observation)
            too_long = quiet_s > self.activity.limit_s() and self.activity.has_begun
            return quiet_s if too_long and self.stood_s >= observation.now_s - quiet_s else 0.0
        if not self.watches(observation) or math.isnan(self.advanced_s):
            return 0.0
        silent_s = observation.now_s - self.advanced_s
        return silent_s if silent_s > self.stall_limit_s() else 0.0

    def watches(self, observation: Observation) -> bool:
        """Whether silence or slowness mean anything now: running, past its warm-up, in no quiet phase."""
        job = observation.job
        running = job is None or (job.phase == "running" and observation.now_s >= job.quiet_until_s)
        return running and self.reads_steps and not self.is_in_phase(observation.now_s)

    def quiet_s(self, observation: Observation) -> float:
        """Seconds without any activity, whatever is known of steps; 0 while the job recovers or is in a declared phase."""
        job = observation.job
        if self.is_in_phase(observation.now_s) or (job is not None and job.phase not in ("running", "starting")):
            return 0.0
        return self.activity.quiet_s(observation.now_s)

    def is_in_phase(self, now_s: float) -> bool:
        """A declared phase lasts, and not for too long."""
        return bool(self.phase) and now_s - self.phase_since_s < _PHASE_LIMIT_S

    @property
    def moved_s(self) -> float:
        """When the job is known to have moved last: a step, or activity where no step is read. NaN: never seen to."""
        return self.advanced_s if self.reads_steps else self.activity.active_s

    def standing_s(self, now_s: float) -> float:
        """Seconds since the newest step, whatever phase is declared; 0 before the first."""
        return 0.0 if math.isnan(self.advanced_s) else max(0.0, now_s - self.advanced_s)

    def forget_slow(self, since_s: float) -> None:
        """Do not learn from what was just called anomalous: drop step times from `since_s` on."""
        self._durations = deque((item for item in self._durations if item[0] < since_s), maxlen=400)
        self._gaps = deque((item for item in self._gaps if item[0] < since_s), maxlen=400)

    def hold(self, now_s: float) -> None:
        """An observation could not be read: silence counts from here, since a standstill that was not observed is none."""
        if not math.isnan(self.advanced_s):
            self.advanced_s = now_s

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much: what is remembered lies as far back as before."""
        self.advanced_s += by_s
        self.phase_since_s += by_s
        self.saved_s += by_s
        self.stood_s += by_s
        self.still_s += by_s
        self.activity.move(by_s)
        self.first = None if self.first is None else (self.first[0], self.first[1] + by_s)
        for times in (self._durations, self._recent, self._gaps):
            moved = [(at_s + by_s, seconds) for at_s, seconds in times]
            times.clear()
            times.extend(moved)

    def _start_generation(self, generation: int) -> None:
        self.generation = generation
        self.step = -math.inf
        self.advanced_s = math.nan
        self.steps_in_generation = 0
        self.by_machine = {}
        self.first = None
        self.phase = ""
        self.saved_s = math.nan
        self._open = {}
        self._first_step = math.nan
        self._recent.clear()
        self.activity.restart()
        self.stood_s = self.still_s = -math.inf

    def _follow_activity(self, observation: Observation) -> None:
        job, window = observation.job, observation.window
        if window is not None:
            self.activity.update(window, window.machines if job is None else job.machines)
        if self.phase or (job is not None and job.phase not in ("running", "starting")):
            self.activity.excuse()
        for statement in observation.statements:
            if statement.source == "stacks" and statement.stands is not None:
                self.still_s = max(self.still_s, statement.time_s)
                if statement.stands:
                    self.stood_s = max(self.stood_s, statement.time_s)
                else:
                    self.activity.survive(observation.now_s)

    def _read_phase(self, observation: Observation) -> None:
        """Phases of this generation only: one that dangles from an earlier one neither protects nor accuses anybody.

        A machine whose launcher tells of its workers is believed by that: an agent that dies never tells a phase's end.
        """
        job = observation.job
        started_s = job.generation_start_s if job is not None else -math.inf
        for signal in observation.signals:
            if signal.kind == "phase" and signal.data.get("phase") in QUIET_PHASES and signal.time_s >= started_s:
                self._open.pop(signal.machine or "", None)
                if signal.data.get("state") == "begin":
                    self._open[signal.machine or ""] = str(signal.data["phase"])
                elif signal.data["phase"] == "checkpoint":
                    self.saved_s = signal.time_s if math.isnan(self.saved_s) else max(self.saved_s, signal.time_s)
                self.advanced_s = max(self.advanced_s, signal.time_s) if self.advanced_s == self.advanced_s else math.nan
        views = [view for machine, view in observation.fleet.items() if job is None or machine in job.machines]
        fresh = [view for view in views if _age_s(view) < _FRESH_S]
        workers = [worker for view in fresh for worker in view.workers if job is None or worker.generation == job.generation]
        told_by_launcher = {view.machine for view in views if view.workers}
        open_now = [worker.phase for worker in workers if worker.phase in QUIET_PHASES]
        open_now += [phase for machine, phase in self._open.items() if machine not in told_by_launcher]
        if self.phase and not open_now:
            self.advanced_s = observation.now_s  # the pause just ended: silence counts from here
            self.saved_s = observation.now_s if self.phase == "checkpoint" else self.saved_s
        if open_now and not self.phase:
            self.phase_since_s = observation.now_s
        self.phase = (open_now[0] or "") if open_now else ""

    def _newest(self, observation: Observation) -> tuple[float, float]:
        newest, at_s = -math.inf, math.nan
        for machine, view in observation.fleet.items():
            for worker in view.workers:
                current = worker.generation == self.generation or observation.job is None
                if worker.step is not None and worker.state == "running" and current:
                    self._note_first(worker.first_step, worker.first_step_time_s)
                    self.by_machine[machine] = max(self.by_machine.get(machine, -math.inf), float(worker.step))
                    if worker.step > newest:
                        newest, at_s = float(worker.step), worker.step_time_s or observation.now_s
        window = observation.window
        if window is not None and "steps_total" in window.metrics and not observation.fleet:
            values_TM = window.values_TMK[:, :, window.metrics.index("steps_total")]
            for row, time_s in enumerate(window.times_T):
                if np.isfinite(values_TM[row]).any() and float(np.nanmax(values_TM[row])) > newest:
                    newest, at_s = float(np.nanmax(values_TM[row])), float(time_s)
        return newest, at_s

    def _note_first(self, step: int | None, time_s: float | None) -> None:
        """A page holds the last 64 steps: what it calls the first is that only at the first look."""
        if self.first is None and step is not None and time_s is not None:
            self.first = (float(step), time_s)

    def _advance(self, step: float, at_s: float) -> None:
        if math.isfinite(self.step) and not math.isnan(self.advanced_s) and at_s > self.advanced_s:
            seconds = (at_s - self.advanced_s) / (step - self.step)
            if step - self._first_step > _WARM_UP_STEPS:
                self._recent.append((at_s, seconds))
                self._durations.append((at_s, seconds))
                self._gaps.append((at_s, at_s - self.advanced_s))
        else:
            self._first_step = self.first[0] if self.first is not None else step
        self.steps_in_generation = int(step - self._first_step) + 1
        self.step = step
        self.advanced_s = at_s


def _age_s(view: MachineView) -> float:
    """Since it was last heard who speaks for the workers: the launcher, or the agent of a job that we only watch."""
    age_s = view.agent_age_s if view.launcher_age_s is None else view.launcher_age_s
    return math.inf if age_s is None else age_s
