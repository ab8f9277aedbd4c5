"""What telemetry says while the job is in a phase that it declared: nothing new. A checkpoint moves every machine's levels, and not all
at the same instant; none of that is a fault. A fault inside a phase is told when the phase ends, or when it lasts too long;
one that clearly began before the phase, at once.
"""

from __future__ import annotations

from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.observation import Observation, Rule, RuleResult

__all__ = ["PhasedRule"]

_STANDS_S = 120.0
_BEFORE_S = 20.0  # a deviation that is older than the phase by this much does not come from it


class PhasedRule:
    """A telemetry rule that hears `phase` signals (types.Rule): of a recording, where no launcher tells what the workers do.

    tracker: shared, and updated before every observation.
    """

    def __init__(self, rule: Rule, tracker: JobTracker) -> None:
        self.name = rule.name
        self._rule = rule
        self._tracker = tracker
        self._standing: dict[tuple[str, ...], float] = {}  # machines to when they were last suspected aloud

    def observe(self, observation: Observation) -> RuleResult:
        result, now_s, phases = self._rule.observe(observation), observation.now_s, self._tracker.idle_phases
        quiet, older_s = phases.is_quiet(now_s), phases.began_s - _BEFORE_S
        self._standing = {machines: seen_s for machines, seen_s in self._standing.items() if now_s - seen_s <= _STANDS_S}
        told = tuple(item for item in result.suspects if not quiet or item.machines in self._standing or item.since_s < older_s)
        self._standing.update({item.machines: now_s for item in told})
        return RuleResult(told, result.requests, result.blind)
