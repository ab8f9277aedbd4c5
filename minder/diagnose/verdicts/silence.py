"""Who does not answer, and whether the job has shown since then that the machine lives: its peers kept stepping with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from minder.diagnose.verdicts.progress import Progress
from minder.model.observation import Observation

__all__ = ["Silence", "is_watched"]

_LAG_S = 3.0  # what peers had done before is heard of this much later at most
_WITHOUT_S = 10.0  # of a watched job: a silence that began this long before the last step has nothing to do with its end


@dataclass(slots=True)
class _Quiet:
    seen_s: float
    step: float  # the job's newest step soon after the machine fell silent


class Silence:
    """Feed it every observation, after `progress`. A machine is silent when neither its agent nor its launcher has answered for
    `limit_s`; of a job that is only watched (no launcher of it ever answered) when its agent has not for `watched_limit_s`."""

    def __init__(self, progress: Progress, limit_s: float, watched_limit_s: float | None = None) -> None:
        self._progress = progress
        self._limit_s = limit_s
        self._watched_limit_s = watched_limit_s or limit_s
        self._quiet: dict[str, _Quiet] = {}
        self._generation = -1
        self._began_s: float | None = None
        self._looked_at: Observation | None = None
        self._watched = False

    def update(self, observation: Observation) -> None:
        if self._began_s is None:
            self._began_s = observation.now_s
        job = observation.job
        if job is None:
            return
        if job.generation != self._generation:
            self._generation, self._quiet = job.generation, {}
        limit_s = self._limit(observation)
        silent = {machine for machine in job.machines if self.seconds(machine, observation) > limit_s}
        self._quiet = {machine: item for machine, item in self._quiet.items() if machine in silent}
        for machine in silent:
            item = self._quiet.setdefault(machine, _Quiet(observation.now_s, self._progress.step))
            if observation.now_s - item.seen_s < _LAG_S:
                item.step = self._progress.step

    def silent(self, observation: Observation) -> list[str]:
        """The job's machines that are silent, in their order, without those that the job's own steps acquit."""
        machines = observation.job.machines if observation.job is not None else ()
        return [machine for machine in machines if machine in self._quiet and not self._is_acquitted(machine, observation)]

    def unheard(self, observation: Observation) -> frozenset[str]:
        """All that have not answered for half the limit: whoever lives does, and what falls silent together is not silent for
        `limit_s` at the same moment (each was last asked at another one)."""
        if observation.job is None:
            return frozenset()
        half_s = self._limit(observation) / 2
        return frozenset(machine for machine in observation.job.machines if self.seconds(machine, observation) > half_s)

    def seconds(self, machine: str, observation: Observation) -> float:
        """Since it was last heard. Who never answered is silent since we watch: it may be lost while no controller runs. Who is not
        in the fleet is none of its machines: 0."""
        view = observation.fleet.get(machine)
        if view is None:
            return 0.0
        watched_s = observation.now_s - (self._began_s if self._began_s is not None else observation.now_s)
        agent_s = watched_s if view.agent_age_s is None else view.agent_age_s
        if self._is_watched(observation):
            return agent_s
        return min(agent_s, watched_s if view.launcher_age_s is None else view.launcher_age_s)

    def _limit(self, observation: Observation) -> float:
        return self._watched_limit_s if self._is_watched(observation) else self._limit_s

    def _is_watched(self, observation: Observation) -> bool:
        """`is_watched`, looked at once for each observation: it is asked for every machine."""
        if self._looked_at is not observation:
            self._looked_at, self._watched = observation, is_watched(observation)
        return self._watched

    def _is_acquitted(self, machine: str, observation: Observation) -> bool:
        if self._progress.step > self._quiet[machine].step + 1:
            return True
        if math.isnan(self._progress.advanced_s) or not self._is_watched(observation):
            return False
        return self.seconds(machine, observation) - self._progress.standing_s(observation.now_s) > _WITHOUT_S


def is_watched(observation: Observation) -> bool:
    """No launcher of ours runs the job."""
    return all(view.launcher_age_s is None for view in observation.fleet.values())
