"""What telemetry alone says, weighed against what the job itself shows: a deviation that does not reach the training is noted, no more.

A job that steps as fast as ever is not harmed by a warm slot or a busy sidecar; while it starts or is in a declared pause,
telemetry says nothing at all.
"""

from __future__ import annotations

from dataclasses import replace

from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.model.evidence import Evidence, Scores, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["GatedRule"]


class GatedRule:
    """The telemetry rule of a live job whose steps are known (types.Rule)."""

    name = "telemetry"

    def __init__(self, rule: TelemetryRule, tracker: JobTracker) -> None:
        self._rule = rule
        self._tracker = tracker

    @property
    def scores(self) -> Scores | None:
        return self._rule.scores

    def observe(self, observation: Observation) -> RuleResult:
        result = self._rule.observe(observation)
        if not result.suspects or self._tracker.steps.advanced_s != self._tracker.steps.advanced_s:
            return result
        if not self._tracker.watches(observation):
            return RuleResult()
        if self._tracker.stalled_s(observation) or self._is_slow(observation.now_s):
            return result
        return RuleResult(tuple(self._noted(suspect) for suspect in result.suspects), result.requests)

    def _is_slow(self, now_s: float) -> bool:
        return self._tracker.steps.is_slower(self._tracker.limits.reaches_times, now_s, self._tracker.limits.recent_s)

    def _noted(self, suspect: Suspect) -> Suspect:
        step_s = self._tracker.steps.typical_s
        against = Evidence("steps", None, f"the job steps as usual ({step_s:.2f} s a step)", "step_seconds", observed=step_s)
        return replace(suspect, tier="watch", against=(*suspect.against, against))
