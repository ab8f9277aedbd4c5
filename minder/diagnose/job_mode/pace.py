"""Since when the job steps slower than it used to, and how slow that is.

`Pace` is for what holds processes up (stacks), and for the job's mode. Slower than usual is a median over some seconds, so that a slow
step, a logging step or a short burst is none; the way back is quick: as soon as more steps are usual than slow.

`SlowSpell` is for what only reads connections: it begins within seconds, and a single quick step does not end it.
"""

from __future__ import annotations

import math

from minder.diagnose.job_mode.steps import StepClock
from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds

__all__ = ["Pace", "SlowSpell"]


class Pace:
    """Feed `update` every observation once, after the steps. Unix seconds."""

    def __init__(self, steps: StepClock, limits: Thresholds = THRESHOLDS) -> None:
        self._steps = steps
        self._limits = limits
        self.since_s: float | None = None  # None: at its usual pace, or nothing is known of it
        self.usual_s = self.step_s = math.nan  # seconds per step, before and now

    def update(self, now_s: float, watches: bool) -> None:
        """watches: slowness means something now. Nothing changes in a declared phase, while the job starts, or before it has settled."""
        steps, limits = self._steps, self._limits
        if not watches:
            return
        if self.since_s is None or now_s - self.since_s > limits.slow_relearn_s:
            self.usual_s = steps.typical_s
        long_s = limits.slow_horizon_steps * self.usual_s if self.usual_s == self.usual_s else 0.0
        step_s = steps.recent_s(now_s, max(limits.slow_horizon_s, long_s))
        if math.isnan(step_s) or math.isnan(self.usual_s):
            return
        self.step_s = step_s
        if step_s <= limits.slow_times * self.usual_s + limits.slow_least_s:
            self.since_s = None
        elif self.since_s is None:
            self.since_s = now_s

    def restart(self) -> None:
        """The job was started again: its pace is to be seen anew."""
        self.since_s, self.usual_s, self.step_s = None, math.nan, math.nan


class SlowSpell:
    """`update` once per observation, by the rule that acts on it: the steps of a spell are not learned from. Unix seconds."""

    def __init__(self, steps: StepClock, limits: Thresholds = THRESHOLDS) -> None:
        self._steps, self._limits = steps, limits
        self.since_s: float | None = None
        self._at_s = -math.inf  # when steps were last seen slow
        self._before_s = math.nan  # seconds per step before it became slow: what is slow is not learned

    def update(self, now_s: float, watches: bool) -> bool:
        """Whether steps are slow now. watches: slowness means something."""
        is_slow = watches and self._is_slow(now_s)
        if is_slow:
            self._at_s = now_s
        elif self.since_s is None or now_s - self._at_s > self._limits.spell_calm_s or not watches:
            self.since_s = None
            return False
        if self.since_s is None:
            self.since_s = now_s - self._limits.spell_lead_s
            self._steps.forget_slow(self.since_s)
            self._before_s = self._steps.typical_s
        return is_slow

    def usual_s(self, now_s: float) -> float:
        """Seconds per step while the job was well."""
        kept = self.since_s is not None and now_s - self.since_s < self._limits.slow_relearn_s and not math.isnan(self._before_s)
        return self._before_s if kept else self._steps.typical_s

    def _is_slow(self, now_s: float) -> bool:
        usual_s, recent_s = self.usual_s(now_s), self._steps.recent_s(now_s, self._limits.spell_horizon_s)
        if math.isnan(usual_s) or math.isnan(recent_s):
            return False
        return recent_s > self._limits.slow_times * usual_s + self._limits.slow_least_s
