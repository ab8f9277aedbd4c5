"""A machine that says nothing: absence accuses only with a second witness (docs/recordings.md).

Silent agent alone: nothing. Agent and launcher silent while the peers stall, or while a peer reports the broken connection:
gone. Of a job that is only watched there is no launcher to hear: an agent that fell silent as the whole job stopped is a page.
Peers that keep stepping acquit it. Everybody silent, or about to be: it is the monitoring that is out, or the site, and
whoever went dark with it has a minute to come back after most others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from minder.diagnose.verdicts.outage import Outage
from minder.diagnose.verdicts.progress import Progress
from minder.diagnose.verdicts.silence import Silence, is_watched
from minder.model.evidence import Evidence, Suspect, Tier
from minder.model.observation import Observation, RuleResult

__all__ = ["AbsenceRule"]

_IN_PHASE_S = 30.0  # a network blip during a checkpoint is shorter
_WATCHED_SILENT_S = 15.0  # an agent that is only restarted is back by then


class AbsenceRule:
    """Reads how long ago agents and launchers answered (types.Rule). `progress` is shared and already updated."""

    name = "absence"

    def __init__(self, progress: Progress, silent_s: float = 3.0) -> None:
        self._progress = progress
        self._silent_s = silent_s
        self._silence = Silence(progress, silent_s, _WATCHED_SILENT_S)
        self._outage = Outage()
        self._told: set[str] = set()
        self._generation = -1
        self._echo_s: float | None = None

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        self._silence.update(observation)
        if job is None:
            return RuleResult()
        most_dark = self._outage.update(self._silence.unheard(observation), len(job.machines), observation.now_s)
        if job.phase not in ("running", "starting"):
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._told, self._echo_s = job.generation, set(), None
        self._note_echoes(observation)
        silent = [machine for machine in self._silence.silent(observation) if machine not in self._outage.returning]
        if not silent or most_dark:
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
        stalled_s = self._progress.stalled_s(observation)
        if stalled_s:
            return f"all its peers have stood still for {stalled_s:.1f} s"
        if is_watched(observation):
            return ""
        if self._echo_s is not None:
            return "a peer's connection broke"
        standing_s = min(
            [self._progress.standing_s(observation.now_s), *(self._silence.seconds(machine, observation) for machine in silent)]
        )
        if standing_s > max(_IN_PHASE_S, 3 * self._progress.stall_limit_s()):
            if self._progress.phase:
                return f"its peers have been in {self._progress.phase} ever since"
            if not self._progress.reads_steps:  # too few yet to know a stall by
                return f"its peers have made no step for {self._progress.standing_s(observation.now_s):.0f} s"
        job = observation.job
        if job is not None and job.phase == "starting" and observation.now_s - job.generation_start_s > 3 * self._silent_s:
            return "the generation cannot start without it"
        return ""

    def _suspect(self, machines: tuple[str, ...], witness: str, observation: Observation) -> Suspect:
        evidence = []
        since_s, watched = observation.now_s, is_watched(observation)
        who = "agent" if watched else "agent and launcher"
        for machine in machines:
            age_s = self._silence.seconds(machine, observation)
            since_s = min(since_s, observation.now_s - age_s)
            evidence.append(Evidence("fleet", machine, f"{who} silent for {age_s:.1f} s; {witness}", since_s=observation.now_s - age_s))
        kind: Literal["machine", "group"] = "machine" if len(machines) == 1 else "group"
        tier: Tier = "page" if watched else "evict"
        confidence = 0.8 if watched else 0.96
        return Suspect(observation.now_s, self.name, kind, machines, "absence", confidence, since_s, tier, tuple(evidence))
