"""Has the job stopped, and since when? By its steps, as far as they are known, else by its telemetry; a declared phase is no stop.

Steps come from `StepClock` (heartbeats, steps_total) or from step events, of which a recording may have nothing else. Where steps go on,
the job goes on, whatever its telemetry shows. Where no steps are known, the work of its median machine decides (CommonLevel).
"""

from __future__ import annotations

import math
from collections import deque
from typing import Literal

import numpy as np

from minder.diagnose.job_mode.common_level import CommonLevel
from minder.diagnose.job_mode.phases import DeclaredPhases
from minder.diagnose.job_mode.steps import StepClock
from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds
from minder.model.observation import Observation

__all__ = ["Halt"]


class Halt:
    """Feed it every observation once, after the clocks that it reads. Times in unix seconds."""

    def __init__(self, steps: StepClock, phases: DeclaredPhases, level: CommonLevel, limits: Thresholds = THRESHOLDS) -> None:
        self._steps, self._phases, self._level, self._limits = steps, phases, level, limits
        self._gaps: deque[float] = deque(maxlen=200)  # between steps that events reported
        self._reported_step, self._stepped_s = -math.inf, math.nan
        self.longest_s = 0.0  # the longest time without a step, or without work, that the job came through
        self.since_s: float | None = None  # None: it does not stand, or nothing is known
        self.knows_steps = False
        self.work: Literal["stands", "works", "unknown"] = "unknown"  # what telemetry shows
        self._phase_s = -math.inf  # the newest word of a phase, or of who belongs to the job
        self.ended = False  # a worker ended well, or the job was reported to have ended: it does not stand, it is over

    def update(self, observation: Observation) -> None:
        self._hear(observation)
        before_s = self.since_s
        self._decide(observation)
        if before_s is not None and self.since_s is None:
            self.longest_s = max(self.longest_s, observation.now_s - before_s)

    @property
    def usual_step_s(self) -> float:
        """The longest usual time between two steps; 0 while unknown."""
        p99_s = self._steps.p99_s
        own = float(np.quantile(self._gaps, 0.99)) if len(self._gaps) >= self._limits.fewest_step_gaps else 0.0
        return max(own, 0.0 if math.isnan(p99_s) else p99_s)

    def stopped_near(self, time_s: float, within_s: float) -> bool:
        """Whether it stands now and made its last step, or its last work, about then."""
        if self.since_s is None:
            return False
        return time_s - within_s - self.usual_step_s <= self.since_s <= time_s + within_s

    def _hear(self, observation: Observation) -> None:
        for signal in observation.signals:
            if signal.kind == "exit" and signal.data.get("code") == 0:
                self.ended = True
            elif signal.kind in ("phase", "membership"):
                self._phase_s = max(self._phase_s, signal.time_s)
            elif signal.kind == "step" and isinstance(signal.data.get("step"), (int, float)):
                self._take_step(float(signal.data["step"]), signal.time_s)

    def _take_step(self, step: float, time_s: float) -> None:
        if step > self._reported_step and time_s > self._stepped_s:
            self._gaps.append(time_s - self._stepped_s)
        if step != self._reported_step:
            self._reported_step, self._stepped_s = step, time_s
            self.ended = False

    def _decide(self, observation: Observation) -> None:
        now_s = observation.now_s
        stepped_s = [time_s for time_s in (self._steps.advanced_s, self._stepped_s) if not math.isnan(time_s)]
        running = observation.job is None or observation.job.phase == "running"
        newest_s = max([*stepped_s, self._phase_s])
        self.knows_steps = len(self._gaps) >= self._limits.fewest_step_gaps or not math.isnan(self._steps.p99_s)
        self.work = self._level.state(now_s)
        self.since_s = None
        if self._phases.lasts(now_s) or not running or self.ended:
            return
        if self.knows_steps:
            stands = now_s - newest_s > max(self._limits.halt_least_s, self._limits.halt_times * self.usual_step_s)
            self.since_s = newest_s if stands else None
        elif self.work == "stands" and self._level.since_s is not None:
            self.since_s = max(self._level.since_s, self._phase_s)
