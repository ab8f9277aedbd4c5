"""The one owner of what the job is doing: fed once per observation, shared by all rules and the controller.

Where no step is read, what telemetry shows of the job's activity stands for it (`activity.py`): the job stalls once it has been at
work, has been quiet for too long, and its ranks' stacks were the same in two captures since. Stacks that change are progress too.
"""

from __future__ import annotations

import math
from dataclasses import replace

from minder.diagnose.job_mode.activity import Activity
from minder.diagnose.job_mode.answers import Outage, Silence
from minder.diagnose.job_mode.common_level import CommonLevel
from minder.diagnose.job_mode.ends import WorkerEnds
from minder.diagnose.job_mode.halt import Halt
from minder.diagnose.job_mode.mode import ModeClock
from minder.diagnose.job_mode.pace import Pace, SlowSpell
from minder.diagnose.job_mode.phases import DeclaredPhases, IdlePhases
from minder.diagnose.job_mode.steps import StepClock
from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds
from minder.model.job_mode import JobMode
from minder.model.observation import Observation

__all__ = ["JobTracker"]


class JobTracker:
    """`update` with every observation once, before any rule sees it; rules read the parts. Times are unix seconds.

    steps, phases, activity: what the job reports; ends: what launchers do. level, halt, pace, silence, outage: what is concluded. mode: all
    of it in one record.
    """

    mode: JobMode | None

    def __init__(self, limits: Thresholds = THRESHOLDS) -> None:
        self.limits = limits
        self.steps = StepClock(limits)
        self.phases = DeclaredPhases(limits)
        self.ends = WorkerEnds(self.steps, limits)
        self.activity = Activity(limits)
        self.stood_s = -math.inf  # when stacks last were the same in two captures
        self.still_s = -math.inf  # when two captures were last compared, whatever came of it
        self.has_worked = False  # some generation came to its first step, or was at work
        self._modes = ModeClock(limits)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """What is not carried over a clock that was set."""
        limits = self.limits
        self.idle_phases = IdlePhases(limits)
        self.level = CommonLevel(limits)
        self.halt = Halt(self.steps, self.phases, self.level, limits)
        self.pace = Pace(self.steps, limits)
        self.outage = Outage(limits)
        self.silence = Silence(self.steps, limits.silent_s, limits.watched_silent_s, limits)
        self.slow_spell = SlowSpell(self.steps, limits)
        self.mode = None
        self._silences: dict[float, Silence] = {}

    def update(self, observation: Observation) -> Observation:
        """Note what it shows, and hand it on with the job's mode in it and in its window."""
        job, now_s = observation.job, observation.now_s
        if job is not None and job.generation != self.steps.generation:
            self._start_generation(job.generation)
        self._follow_phases(observation)
        self._follow_activity(observation)
        self.steps.update(observation)
        self.ends.update(observation)
        self.has_worked = self.has_worked or self.steps.steps_in_generation > 0 or self.activity.has_begun
        self._follow_answers(observation)
        self.pace.update(now_s, self.is_paced(observation))
        self.halt.update(observation)
        self.mode = self._modes.look(self, observation)
        window = None if observation.window is None else replace(observation.window, mode=self.mode)
        return replace(observation, window=window, mode=self.mode)

    def silence_after(self, limit_s: float) -> Silence:
        """The silence of machines that have not answered for `limit_s`, followed from now on. One per limit."""
        return self._silences.setdefault(limit_s, Silence(self.steps, limit_s, limits=self.limits))

    def stalled_s(self, observation: Observation) -> float:
        """Seconds beyond which no rank stepped; 0 while the job steps, starts, recovers or is in a declared phase. Without steps: seconds
        without any activity, once stacks have shown that nothing moves."""
        if not self.steps.reads_steps:
            quiet_s = self.quiet_s(observation)
            too_long = quiet_s > self.activity.limit_s() and self.activity.has_begun
            return quiet_s if too_long and self.stood_s >= observation.now_s - quiet_s else 0.0
        if not self.watches(observation) or math.isnan(self.steps.advanced_s):
            return 0.0
        silent_s = observation.now_s - self.steps.advanced_s
        return silent_s if silent_s > self.steps.stall_limit_s() else 0.0

    def watches(self, observation: Observation) -> bool:
        """Whether silence means anything now: running, past its warm-up, in no quiet phase."""
        job = observation.job
        running = job is None or (job.phase == "running" and observation.now_s >= job.quiet_until_s)
        return running and self.steps.reads_steps and not self.phases.lasts(observation.now_s)

    def is_paced(self, observation: Observation) -> bool:
        """Whether slowness means anything now: the job is watched, and after a restart its pace has settled."""
        return self.watches(observation) and self.steps.has_settled(observation.now_s)

    def quiet_s(self, observation: Observation) -> float:
        """Seconds without any activity, whatever is known of steps; 0 while the job recovers or is in a declared phase."""
        job = observation.job
        if self.phases.lasts(observation.now_s) or (job is not None and job.phase not in ("running", "starting")):
            return 0.0
        return self.activity.quiet_s(observation.now_s)

    def still_since_s(self, observation: Observation) -> float | None:
        """When the job last moved in any way, where that is too long ago; None while it moves, or while that is unknown."""
        steps, activity, now_s, job = self.steps, self.activity, observation.now_s, observation.job
        if job is None or job.phase not in ("running", "starting") or self.phases.lasts(now_s):
            return None
        quiet_s, known = self.quiet_s(observation), activity.is_known(now_s)
        if steps.reads_steps:
            if not self.stalled_s(observation) or (known and quiet_s <= steps.stall_limit_s()):
                return None
            return max(steps.advanced_s, activity.quiet_since_s) if known else steps.advanced_s
        if not known and job.had_steps:  # steps of this run were read before, and this generation makes none
            since_s = max(job.generation_start_s, -math.inf if math.isnan(steps.advanced_s) else steps.advanced_s)
            return since_s if now_s - since_s > activity.limit_s() else None
        return activity.quiet_since_s if known and quiet_s > activity.limit_s() else None

    def works_without_steps(self, generation_start_s: float, now_s: float) -> bool:
        """Whether the generation is at work, had its time, and reported no step."""
        settled = now_s - generation_start_s >= self.limits.no_step_reported_s
        return settled and self.activity.has_begun and not self.steps.steps_in_generation

    @property
    def moved_s(self) -> float:
        """When the job is known to have moved last: a step, or activity where no step is read. NaN: never seen to."""
        return self.steps.advanced_s if self.steps.reads_steps else self.activity.active_s

    def hold(self, now_s: float) -> None:
        """An observation could not be read: silence counts from here, since a standstill that was not observed is none."""
        if not math.isnan(self.steps.advanced_s):
            self.steps.count_from(now_s)

    def move(self, by_s: float) -> None:
        """The wall clock was set forward by so much: what the job reported lies as far back as before; what was concluded is concluded
        anew, by rules that are made anew after this."""
        self.steps.move(by_s)
        self.phases.move(by_s)
        self.ends.move(by_s)
        self.activity.move(by_s)
        self._modes.move(by_s)
        self.stood_s += by_s
        self.still_s += by_s
        self._begin_anew()

    def _start_generation(self, generation: int) -> None:
        self.steps.restart(generation)
        self.phases.restart()
        self.activity.restart()
        self.pace.restart()
        self.stood_s = self.still_s = -math.inf

    def _follow_phases(self, observation: Observation) -> None:
        self.idle_phases.update(observation)
        self.phases.update(observation)
        self.steps.excuse(self.phases.heard_s)
        if self.phases.has_ended:
            self.steps.count_from(observation.now_s)

    def _follow_activity(self, observation: Observation) -> None:
        job, window = observation.job, observation.window
        if window is not None:
            machines = window.machines if job is None else job.machines
            self.activity.update(window, machines)
            self.level.update(window, machines)
        if self.phases.phase or (job is not None and job.phase not in ("running", "starting")):
            self.activity.excuse()
        for statement in observation.statements:
            if statement.source == "stacks" and statement.stands is not None:
                self.still_s = max(self.still_s, statement.time_s)
                if statement.stands:
                    self.stood_s = max(self.stood_s, statement.time_s)
                else:
                    self.activity.survive(observation.now_s)

    def _follow_answers(self, observation: Observation) -> None:
        for silence in (self.silence, *self._silences.values()):
            silence.update(observation)
        if observation.job is not None:
            self.outage.update(self.silence.unheard(observation), len(observation.job.machines), observation.now_s)
