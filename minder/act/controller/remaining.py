"""How long a job would still run: what a machine that slows it down can cost at most."""

from __future__ import annotations

import math

from minder.diagnose.job_mode.tracker import JobTracker

__all__ = ["remaining_s"]


def remaining_s(tracker: JobTracker, total_steps: int | None, now_s: float) -> float | None:
    """Seconds: the steps that are left, each as long as a step takes at present, and never less than one took while the job was well.

    None where it cannot be known: no declared total, a job that has gone beyond it (the number is wrong), fewer than five steps timed.
    """
    left = math.nan if total_steps is None else total_steps - tracker.steps.step
    typical_s = tracker.steps.typical_s
    if not math.isfinite(left) or left < 0 or not math.isfinite(typical_s):
        return None
    recent_s = tracker.steps.recent_s(now_s, tracker.limits.recent_s)
    return left * (max(typical_s, recent_s) if math.isfinite(recent_s) else typical_s)
