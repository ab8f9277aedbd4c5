"""A machine that says nothing: absence accuses only with a second witness (formats.md, catalogue).

Silent agent alone: nothing. Agent and launcher silent while the peers stall, or while a peer reports the broken connection:
gone. Peers that keep stepping acquit it. Everybody silent: it is the monitoring that is out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from minder.types import Evidence, Observation, RuleResult, Suspect
from minder.verdicts.progress import Progress

__all__ = ["AbsenceRule"]

_IN_PHASE_S = 30.0  # a network blip during a checkpoint is shorter


class AbsenceRule:
    """Reads how long ago agents and launchers answered (types.Rule). `progress` is shared and already updated."""

    name = "absence"

    def __init__(self, progress: Progress, silent_s: float = 3.0) -> None:
        self._progress = progress
        self._silent_s = silent_s
        self._told: set[str] = set()
        self._generation = -1
        self._echo_s: float | None = None
        self._watched_since_s: float | None = None

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if self._watched_since_s is None:
            self._watched_since_s = observation.now_s
        if job is None or job.phase not in ("running", "starting"):
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._told, self._echo_s = job.generation, set(), None
        self._note_echoes(observation)
        silent = [m for m in job.machines if self._is_silent(m, observation)]
        answering = [m for m in job.machines if m not in silent]
        if not silent or len(silent) * 2 > len(job.machines) or not answering:
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

    def _is_silent(self, machine: str, observation: Observation) -> bool:
        return self._silence_s(machine, observation) > self._silent_s

    def _silence_s(self, machine: str, observation: Observation) -> float:
        """Seconds since either of its two processes answered; 0 where there is no launcher to answer."""
        agent_s, launcher_s = self._ages(machine, observation)
        return 0.0 if launcher_s is None else min(agent_s, launcher_s)

    def _ages(self, machine: str, observation: Observation) -> tuple[float, float | None]:
        """Seconds since agent and launcher answered. Who never answered is silent since we watch: a machine may be lost while
        no controller runs. No launcher of the job ever answered: a job that is only watched (None)."""
        view = observation.fleet.get(machine)
        watched_s = observation.now_s - (self._watched_since_s or observation.now_s)
        if all(item.launcher_age_s is None for item in observation.fleet.values()):
            return watched_s, None
        agent_s = view.agent_age_s if view is not None else None
        launcher_s = view.launcher_age_s if view is not None else None
        return watched_s if agent_s is None else agent_s, watched_s if launcher_s is None else launcher_s

    def _witness(self, silent: Sequence[str], observation: Observation) -> str:
        stalled_s = self._progress.stalled_s(observation)
        if stalled_s:
            return f"all its peers have stood still for {stalled_s:.1f} s"
        if self._echo_s is not None:
            return "a peer's connection broke"
        standing_s = min([self._progress.standing_s(observation.now_s), *(self._silence_s(machine, observation) for machine in silent)])
        if self._progress.phase and standing_s > max(_IN_PHASE_S, 3 * self._progress.stall_limit_s()):
            return f"its peers have been in {self._progress.phase} ever since"
        job = observation.job
        if job is not None and job.phase == "starting" and observation.now_s - job.generation_start_s > 3 * self._silent_s:
            return "the generation cannot start without it"
        return ""

    def _suspect(self, machines: tuple[str, ...], witness: str, observation: Observation) -> Suspect:
        evidence = []
        since_s = observation.now_s
        for machine in machines:
            age_s = self._silence_s(machine, observation)
            since_s = min(since_s, observation.now_s - age_s)
            evidence.append(
                Evidence("fleet", machine, f"agent and launcher silent for {age_s:.1f} s; {witness}", since_s=observation.now_s - age_s)
            )
        kind: Literal["machine", "group"] = "machine" if len(machines) == 1 else "group"
        return Suspect(observation.now_s, self.name, kind, machines, "absence", 0.96, since_s, "evict", tuple(evidence))
