"""A rule by itself, with a job's tracker that sees every observation first, as in a tick."""

from __future__ import annotations

from collections.abc import Callable

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.observation import Observation, Rule, RuleResult

__all__ = ["Followed"]


class Followed:
    """make: from the tracker to the rule (observation.Rule)."""

    def __init__(self, make: Callable[[JobTracker], Rule]) -> None:
        self.tracker = JobTracker()
        self._rule = make(self.tracker)
        self.name = self._rule.name

    def observe(self, observation: Observation) -> RuleResult:
        return self._rule.observe(self.tracker.update(observation))
