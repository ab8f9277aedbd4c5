"""The job stands and no machine stands out: a person should look. Told once, late, and never as a machine's fault.

Not before five minutes: an undeclared checkpoint or evaluation ends by itself. A job that came through a longer pause is given twice
that, and one of long steps the time of twenty. Where steps alone say that it stands, and telemetry shows nothing of its work, it has
fifteen minutes; where telemetry shows work (an evaluation), an hour. A job whose GPUs are empty, or idle with nothing known of their
memory, may simply have ended: of the former nothing is said, of the latter only after fifteen minutes without a step.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.captures import PASSES_S
from minder.model.evidence import Evidence, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["StandingRule"]

_STEPS_ALONE_S, _AT_WORK_S = 900.0, 3600.0
_LONGER, _STEPS = 2.0, 20.0
_MEMORY, _DUTY = "gpu_memory_used_ratio", "gpu_duty_cycle_ratio"
_HELD = 0.5  # share of its usual level that the memory of a job's GPUs keeps while the job is there
_IDLE = 0.2
_USUAL_ROWS = 300


class StandingRule:
    """Of a recording (types.Rule); StallRule asks for and reports a live job's stalls. tracker: shared, and updated before."""

    name = "standing"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._usual: dict[str, deque[float]] = {name: deque(maxlen=_USUAL_ROWS) for name in (_MEMORY, _DUTY)}
        self._now: dict[str, float] = {}

    def observe(self, observation: Observation) -> RuleResult:
        self._remember(observation)
        since_s = self._tracker.halt.since_s
        if since_s is None or observation.now_s - since_s < self._limit_s():
            return RuleResult()
        stood_s = observation.now_s - since_s
        what = "no step" if self._tracker.halt.knows_steps else "no work on the median machine's GPUs and network"
        evidence = (Evidence("progress", None, f"{what} for {stood_s:.0f} s, and no machine stands out", since_s=since_s),)
        return RuleResult((Suspect(observation.now_s, self.name, "job", (), "stall", 0.7, since_s, "page", evidence),))

    def _limit_s(self) -> float:
        halt = self._tracker.halt
        least_s = max(PASSES_S, _LONGER * halt.longest_s, _STEPS * halt.usual_step_s)
        memory, duty = self._share(_MEMORY), self._share(_DUTY)
        if memory < _HELD:
            return math.inf
        if math.isnan(memory) and duty < _IDLE:
            return max(least_s, _STEPS_ALONE_S) if halt.knows_steps else math.inf
        if halt.knows_steps and halt.work != "stands":
            return max(least_s, _STEPS_ALONE_S if halt.work == "not told" else _AT_WORK_S)
        return least_s

    def _share(self, metric: str) -> float:
        """The job's median machine now, against its usual; NaN where one of them is unknown."""
        usual = self._usual[metric]
        level = float(np.median(usual)) if len(usual) >= 10 else math.nan
        return self._now.get(metric, math.nan) / level if level > 0 else math.nan

    def _remember(self, observation: Observation) -> None:
        window = observation.window
        if window is None:
            return
        members = [m for m, name in enumerate(window.machines) if observation.job is None or name in observation.job.machines]
        for metric, usual in self._usual.items():
            if metric not in window.metrics or not members:
                continue
            values_TM = window.values_TMK[:, members, window.metrics.index(metric)]
            levels = [float(np.median(row[np.isfinite(row)])) for row in values_TM if np.isfinite(row).any()]
            if levels:
                self._now[metric] = levels[-1]
            if self._tracker.halt.since_s is None and self._tracker.halt.work == "works":
                usual.extend(levels)
