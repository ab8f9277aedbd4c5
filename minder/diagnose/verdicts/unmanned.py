"""Launchers that answer and run nothing of the job: they were started again, and their workers ended with the old ones.

Nobody reports an exit then: whoever would have is gone too. If it is one machine, its peers wait for it; if it is all of them (a
site that was switched on again), nothing at all is left to stand still. The job is started again; no machine is to blame for that.
"""

from __future__ import annotations

from minder.model.evidence import Evidence, Suspect
from minder.model.observation import MachineView, Observation, RuleResult

__all__ = ["UnmannedRule", "is_unmanned"]

_ANSWERS_S = 3.0
_RETURN_S = 60.0  # for so long those that are back wait for those that are not
_SHOWN = 8


class UnmannedRule:
    """Reads what launchers say of their workers while the job should run (types.Rule), as long as it is so.

    limit_s: so long after the last exit or exception of the generation others may speak first: they know who failed.
    """

    name = "unmanned"

    def __init__(self, limit_s: float = 5.0) -> None:
        self._limit_s = limit_s
        self._generation = -1
        self._since: dict[str, float] = {}
        self._heard_s = 0.0

    def observe(self, observation: Observation) -> RuleResult:
        job = observation.job
        if job is None:
            return RuleResult()
        if job.generation != self._generation:
            self._generation, self._since, self._heard_s = job.generation, {}, 0.0
        if any(signal.kind in ("exit", "exception") and signal.generation == job.generation for signal in observation.signals):
            self._heard_s = observation.now_s
        views = [(machine, observation.fleet.get(machine)) for machine in job.machines]
        empty = [machine for machine, view in views if job.phase in ("starting", "running") and is_unmanned(view)]
        self._since = {machine: self._since.get(machine, observation.now_s) for machine in empty}
        if not self._since:
            return RuleResult()
        since_s = min(self._since.values())
        wait_s = self._limit_s if all(_answers(view) for _, view in views) else _RETURN_S
        if observation.now_s - max(since_s, self._heard_s) < wait_s:
            return RuleResult()
        evidence = tuple(
            Evidence("fleet", machine, f"its launcher answers and runs no rank of generation {job.generation}", since_s=at_s)
            for machine, at_s in list(self._since.items())[:_SHOWN]
        )
        return RuleResult((Suspect(observation.now_s, self.name, "job", (), "explicit", 0.9, since_s, "evict", evidence),))


def is_unmanned(view: MachineView | None) -> bool:
    """Its launcher answers, and every slot stands at the barrier without a rank. A worker that ended, well or not, is another matter."""
    if view is None or not _answers(view) or not view.workers:
        return False
    return all(worker.state in ("starting", "waiting") and worker.rank is None for worker in view.workers)


def _answers(view: MachineView | None) -> bool:
    return view is not None and view.launcher_age_s is not None and view.launcher_age_s <= _ANSWERS_S
