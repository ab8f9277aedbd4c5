"""What telemetry alone says, weighed against what the job itself shows: a deviation that does not reach the training is noted, no more.

A job that steps as fast as ever is not harmed by a warm slot or a busy sidecar; while it starts or is in a declared pause,
telemetry says nothing at all.
"""

from __future__ import annotations

from dataclasses import replace

from minder.diagnose.verdicts.progress import Progress
from minder.diagnose.verdicts.telemetry import TelemetryRule
from minder.model.evidence import Evidence, Scores, Suspect
from minder.model.observation import Observation, RuleResult

__all__ = ["GatedRule"]

_REACHES = 1.3


class GatedRule:
    """The telemetry rule of a live job whose steps are known (types.Rule)."""

    name = "telemetry"

    def __init__(self, rule: TelemetryRule, progress: Progress) -> None:
        self._rule = rule
        self._progress = progress

    @property
    def scores(self) -> Scores | None:
        return self._rule.scores

    def observe(self, observation: Observation) -> RuleResult:
        result = self._rule.observe(observation)
        if not result.suspects or self._progress.advanced_s != self._progress.advanced_s:
            return result
        if not self._progress.watches(observation):
            return RuleResult()
        if self._progress.stalled_s(observation) or self._is_slow(observation.now_s):
            return result
        return RuleResult(tuple(self._noted(suspect) for suspect in result.suspects), result.requests)

    def _is_slow(self, now_s: float) -> bool:
        return self._progress.recent_s(now_s, 6.0) > _REACHES * self._progress.typical_s

    def _noted(self, suspect: Suspect) -> Suspect:
        step_s = self._progress.typical_s
        against = Evidence("steps", None, f"the job steps as usual ({step_s:.2f} s a step)", "step_seconds", observed=step_s)
        return replace(suspect, tier="watch", against=(*suspect.against, against))
