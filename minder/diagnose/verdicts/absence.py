"""A machine that says nothing: absence accuses only with a second witness (docs/recordings.md).

Silent agent alone: nothing. Agent and launcher silent while the peers stall, or while a peer reports the broken connection:
gone. Of a job that is only watched there is no launcher to hear: an agent that fell silent as the whole job stopped is a page.
Peers that keep stepping acquit it. Everybody silent, or about to be: it is the monitoring that is out, or the site, and
whoever went dark with it has a minute to come back after most others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from minder.diagnose.job_mode.answers import is_watched
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.evidence import Evidence, Suspect, Tier
from minder.model.observation import Observation, RuleResult

__all__ = ["AbsenceRule"]


class AbsenceRule:
    """Reads how long ago agents and launchers answered (types.Rule). `tracker` is shared and already updated."""

    name = "absence"

    def __init__(self, tracker: JobTracker) -> None:
        self._tracker = tracker
        self._told: set[str] = set()
        self._generation = -1
        self._echo_s: float | None = None

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None or job.phase not in ("running", "starting"):
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._told, self._echo_s = job.generation, set(), None
        self._note_echoes(observation)
        outage = self._tracker.outage
        silent = [machine for machine in self._tracker.silence.silent(observation) if machine not in outage.returning]
        if not silent or outage.lasts:
            return RuleResult()
        witness = self._witness(silent, observation)
        if not witness:
            return RuleResult()
        new = tuple(m for m in silent if m not in self._told)
        if not new:
            return RuleResult()
        self._told |= set(new)
        return RuleResult((self._suspect(new, witness, observation),))

    def _note_echoes(self, observation: Observation) -> None:
        for signal in observation.signals:
            same = signal.generation == self._generation
            if same and signal.kind == "exception" and signal.data.get("victim") and self._echo_s is None:
                self._echo_s = signal.time_s

    def _witness(self, silent: Sequence[str], observation: Observation) -> str:
        stalled_s = self._tracker.stalled_s(observation)
        if stalled_s:
            return f"all its peers have stood still for {stalled_s:.1f} s"
        if is_watched(observation):
            return ""
        if self._echo_s is not None:
            return "a peer's connection broke"
        tracker, limits = self._tracker, self._tracker.limits
        standing_s = min(
            [tracker.steps.standing_s(observation.now_s), *(tracker.silence.seconds(machine, observation) for machine in silent)]
        )
        if standing_s > max(limits.in_phase_silent_s, 3 * tracker.steps.stall_limit_s()):
            if tracker.phases.phase:
                return f"its peers have been in {tracker.phases.phase} ever since"
            if not tracker.steps.reads_steps:  # too few yet to know a stall by
                return f"its peers have made no step for {tracker.steps.standing_s(observation.now_s):.0f} s"
        job = observation.job
        if job is not None and job.phase == "starting" and observation.now_s - job.generation_start_s > 3 * limits.silent_s:
            return "the generation cannot start without it"
        return ""

    def _suspect(self, machines: tuple[str, ...], witness: str, observation: Observation) -> Suspect:
        evidence = []
        since_s, watched = observation.now_s, is_watched(observation)
        who = "agent" if watched else "agent and launcher"
        for machine in machines:
            age_s = self._tracker.silence.seconds(machine, observation)
            since_s = min(since_s, observation.now_s - age_s)
            evidence.append(Evidence("fleet", machine, f"{who} silent for {age_s:.1f} s; {witness}", since_s=observation.now_s - age_s))
        kind: Literal["machine", "group"] = "machine" if len(machines) == 1 else "group"
        tier: Tier = "page" if watched else "evict"
        confidence = 0.8 if watched else 0.96
        return Suspect(observation.now_s, self.name, kind, machines, "absence", confidence, since_s, tier, tuple(evidence))
