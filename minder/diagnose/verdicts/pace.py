"""Since when the job steps slower than it used to, and how slow that is.

Slower than usual is a median over some seconds, so that a slow step, a logging step or a short burst is none; the way back is quick: as
soon as more steps are usual than slow.
"""

from __future__ import annotations

import math

from minder.diagnose.verdicts.progress import Progress
from minder.model.observation import Observation

__all__ = ["Pace"]

_HORIZON_S, _HORIZON_STEPS = 15.0, 3.0  # the longer of the two
_LEAST_S = 0.02  # shorter steps differ by the host's whims
_RELEARN_S = 300.0  # so long the pace before the slowness stays the usual one; then the new one is


class Pace:
    """progress: shared, and updated before every observation. factor: slow is a step that takes so many times its usual. Unix seconds."""

    def __init__(self, progress: Progress, factor: float = 1.5) -> None:
        self._progress = progress
        self._factor = factor
        self.since_s: float | None = None  # None: at its usual pace, or nothing is known of it
        self.usual_s = self.step_s = math.nan  # seconds per step, before and now

    def update(self, observation: Observation) -> None:
        """Nothing changes while silence means nothing: in a declared phase, while the job starts, before its first steps."""
        progress, now_s = self._progress, observation.now_s
        if not progress.watches(observation):
            return
        if self.since_s is None or now_s - self.since_s > _RELEARN_S:
            self.usual_s = progress.typical_s
        step_s = progress.recent_s(now_s, max(_HORIZON_S, _HORIZON_STEPS * self.usual_s if self.usual_s == self.usual_s else 0.0))
        if math.isnan(step_s) or math.isnan(self.usual_s):
            return
        self.step_s = step_s
        if step_s <= self._factor * self.usual_s + _LEAST_S:
            self.since_s = None
        elif self.since_s is None:
            self.since_s = now_s

    def restart(self) -> None:
        """The job was started again: its pace is to be seen anew."""
        self.since_s, self.usual_s, self.step_s = None, math.nan, math.nan
