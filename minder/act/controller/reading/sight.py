"""What the controller cannot see is said as it begins and as it ends: telemetry that is not scored, steps that are not read, a watched
job of which nothing comes. Where no steps are read, a hang is found late, and that is said within a minute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from minder.act.controller.reading.hearing import ClockSteps
from minder.act.controller.stages import Stages, Tick
from minder.model.clock import Clock
from minder.model.observation import Observation
from minder.model.telemetry import Sample
from minder.record.incidents import kinds

__all__ = ["SightNotes", "StepSight"]

_MOST_CAUSES = 3  # of one outage
_SAID_AFTER_S = 30.0
_ALARMS_S = 600.0  # between two alarms of a kind on the console
_LINES = "job_log_lines_total"
_HEARTBEAT = "call minder.heartbeat(step=...) in the training loop"
_PATTERN = "--step-pattern with a group `step` (job.toml: step_pattern)"


class StepSight:
    """`look` once a tick. trouble: one line with its remedy while no step of this generation has been read, "" otherwise.

    watched: others start the job, so its logs are followed only where an agent was asked to.
    """

    def __init__(self, watched: bool) -> None:
        self.trouble = ""
        self._watched = watched
        self._generation = -1
        self._since_s = math.nan  # when its ranks were first seen at work
        self._lines: dict[str, float] = {}
        self._lines_before: dict[str, float] = {}

    def look(self, monotonic_s: float, observation: Observation, step: float, samples: Sequence[Sample]) -> str:
        """What is to be said now, "" for nothing. monotonic_s: by the monotonic clock; step: the newest, infinite where none is known."""
        self._count(samples)
        generation = -1 if observation.job is None else observation.job.generation
        if generation != self._generation:
            self._lines_before = {} if self._generation < 0 else dict(self._lines)
            self._generation, self._since_s, self.trouble = generation, math.nan, ""
        if math.isnan(self._since_s) and _at_work(observation):
            self._since_s = monotonic_s
        if math.isfinite(step):
            return self._clear(step)
        if observation.job is not None and observation.job.phase not in ("starting", "running"):
            self._since_s = math.nan  # its ranks were ended, to be tested or to be placed anew: no step is due
        if self.trouble or not monotonic_s - self._since_s >= _SAID_AFTER_S:
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


class SightNotes:
    """`note_*` once a tick, each in a guard of its own. on_say: where the lines go besides the ledger."""

    def __init__(self, stages: Stages, tick: Tick, clock: Clock, clock_steps: ClockSteps) -> None:
        self._stages, self._tick, self._clock, self._clock_steps = stages, tick, clock, clock_steps
        self.steps = StepSight(watched=stages.watched is not None)
        self.on_say: Callable[[str], None] = lambda message: None
        self._alarmed_s: dict[str, float] = {}  # kind of alarm to when the console had one
        self._unjudged_s: dict[str, float] = {}  # machine to when its telemetry was last not believed

    def note_scoring(self) -> None:
        """Telemetry that is not scored is reported: the silence of its rule means nothing."""
        trouble = self._stages.unscored()
        reported = self._tick.unscored
        if trouble and trouble not in reported and len(reported) < _MOST_CAUSES:  # first that there is no answer, then why
            reported.append(trouble)
            self._tick.errors["scoring"] += 1
            self._tick.backlog.tell(kinds.DEGRADED, {"what": "scoring", "detail": trouble})
            self.on_say(f"telemetry is not scored: {trouble}")
        elif reported and not trouble:
            reported.clear()
            self._tick.backlog.tell(kinds.NOTE, {"text": "telemetry is scored again"})
            self.on_say("telemetry is scored again")

    def unjudged(self) -> dict[str, str]:
        """Machine to one line, for those of which the detector does not believe what is exported."""
        scores = self._stages.scores()
        return {} if scores is None else dict(scores.not_judged)

    def note_unjudged(self) -> None:
        """That a machine's telemetry is not believed is said as it begins: somewhere an exporter is broken, or a clock is off."""
        now_s = self._clock.monotonic_s()
        for machine, why in self.unjudged().items():
            if now_s - self._unjudged_s.get(machine, -math.inf) >= _ALARMS_S:
                self._tick.backlog.tell(kinds.DEGRADED, {"what": "telemetry", "detail": f"{machine}: {why}"})
                self.on_say(f"telemetry of {machine} is not believed: {why}")
            self._unjudged_s[machine] = now_s

    def note_alarm(self) -> None:
        """That the job's pace is unusual is noted as it begins, and names no machine: rules do, of what they then see. On the console one
        of a kind in ten minutes is enough."""
        alarm, now_s = self._stages.alarm(), self._clock.monotonic_s()
        if alarm and not self._tick.alarm:
            self._tick.backlog.tell(kinds.NOTE, {"text": alarm})
            kind = alarm.partition(":")[0]
            if now_s - self._alarmed_s.get(kind, -math.inf) >= _ALARMS_S:
                self._alarmed_s[kind] = now_s
                self.on_say(f"{alarm}; connections are looked at, no machine is named by this")
        self._tick.alarm = alarm

    def note_steps(self, observation: Observation, samples: Sequence[Sample]) -> None:
        """That no step is read is said once a generation, with its remedy, and so is its end."""
        said = self.steps.look(self._clock.monotonic_s(), observation, self._stages.tracker.steps.step, samples)
        if said:
            self._tick.backlog.tell(kinds.NOTE, {"text": said})
            self.on_say(said)

    def note_attachment(self, observation: Observation, samples: Sequence[Sample]) -> None:
        """Of a watched job: what is seen of it, and what is not. Said, and written down."""
        stages = self._stages
        if stages.attachment is None or self._clock_steps.settling:
            return
        trouble = self._tick.failing.get("telemetry", "")
        now_s, step = self._clock.monotonic_s(), stages.tracker.steps.step
        for said in stages.attachment.look(now_s, observation, samples, step, trouble, stages.unread()):
            self._tick.backlog.tell(kinds.NOTE, {"text": said, **stages.attachment.take_news()})
            self.on_say(said)


def _at_work(observation: Observation) -> bool:
    job = observation.job
    if job is None:
        return False
    views = [view for machine, view in observation.fleet.items() if machine in job.machines]
    return any(worker.state == "running" and worker.generation == job.generation for view in views for worker in view.workers)
