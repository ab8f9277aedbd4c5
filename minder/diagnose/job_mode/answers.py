"""Who does not answer, and whether the job has shown since then that the machine lives: its peers kept stepping with it.

Silence is one machine's; an outage is that of most of the job at once, as when a site loses its power: then it is the monitoring that is
out, or the site, and machines come back one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minder.diagnose.job_mode.steps import StepClock
from minder.diagnose.job_mode.thresholds import THRESHOLDS, Thresholds
from minder.model.observation import Observation

__all__ = ["Outage", "Silence", "is_watched"]


@dataclass(slots=True)
class _Quiet:
    seen_s: float
    step: float  # the job's newest step soon after the machine fell silent


class Silence:
    """Feed it every observation once, after `steps`. A machine is silent when neither its agent nor its launcher has answered for
    `limit_s`; of a job that is only watched (no launcher of it ever answered) when its agent has not for `watched_limit_s`."""

    def __init__(self, steps: StepClock, limit_s: float, watched_limit_s: float | None = None, limits: Thresholds = THRESHOLDS) -> None:
        self._steps = steps
        self._limits = limits
        self._limit_s = limit_s
        self._watched_limit_s = watched_limit_s or limit_s
        self._quiet: dict[str, _Quiet] = {}
        self._generation = -1
        self._began_s: float | None = None
        self._watched = False

    def update(self, observation: Observation) -> None:
        if self._began_s is None:
            self._began_s = observation.now_s
        self._watched = is_watched(observation)
        job = observation.job
        if job is None:
            return
        if job.generation != self._generation:
            self._generation, self._quiet = job.generation, {}
        heard_of = job.machines if observation.fleet else ()  # a recording may have nothing of who answers, and thousands of rows
        silent = {machine for machine in heard_of if self.seconds(machine, observation) > self._now_limit_s}
        self._quiet = {machine: item for machine, item in self._quiet.items() if machine in silent}
        for machine in silent:
            item = self._quiet.setdefault(machine, _Quiet(observation.now_s, self._steps.step))
            if observation.now_s - item.seen_s < self._limits.answer_lag_s:
                item.step = self._steps.step

    def silent(self, observation: Observation) -> list[str]:
        """The job's machines that are silent, in their order, without those that the job's own steps acquit."""
        machines = observation.job.machines if observation.job is not None else ()
        return [machine for machine in machines if machine in self._quiet and not self._is_acquitted(machine, observation)]

    def unheard(self, observation: Observation) -> frozenset[str]:
        """All that have not answered for half the limit: what lives does, and what falls silent together is not silent for
        `limit_s` at the same moment (each was last asked at another one)."""
        if observation.job is None or not observation.fleet:
            return frozenset()
        half_s = self._now_limit_s / 2
        return frozenset(machine for machine in observation.job.machines if self.seconds(machine, observation) > half_s)

    def seconds(self, machine: str, observation: Observation) -> float:
        """Since it was last heard. Who never answered is silent since we watch: it may be lost while no controller runs. Who is not
        in the fleet is none of its machines: 0."""
        view = observation.fleet.get(machine)
        if view is None:
            return 0.0
        watched_s = observation.now_s - (self._began_s if self._began_s is not None else observation.now_s)
        agent_s = watched_s if view.agent_age_s is None else view.agent_age_s
        if self._watched:
            return agent_s
        return min(agent_s, watched_s if view.launcher_age_s is None else view.launcher_age_s)

    @property
    def _now_limit_s(self) -> float:
        return self._watched_limit_s if self._watched else self._limit_s

    def _is_acquitted(self, machine: str, observation: Observation) -> bool:
        if self._steps.step > self._quiet[machine].step + 1:
            return True
        if math.isnan(self._steps.advanced_s) or not self._watched:
            return False
        return self.seconds(machine, observation) - self._steps.standing_s(observation.now_s) > self._limits.unrelated_s


class Outage:
    """Feed it every observation's machines that have not been heard lately."""

    def __init__(self, limits: Thresholds = THRESHOLDS) -> None:
        self._limits = limits
        self._since_s: float | None = None
        self._return_until_s = -math.inf
        self._dark: frozenset[str] = frozenset()

    @property
    def lasts(self) -> bool:
        """More than half of the job's machines are unheard."""
        return self._since_s is not None

    @property
    def returning(self) -> frozenset[str]:
        """Machines that went dark with most of the job, a moment ago, and have not been heard again since."""
        return self._dark

    def update(self, unheard: frozenset[str], machines: int, now_s: float) -> bool:
        """True while more than half of the job's machines are unheard."""
        if len(unheard) * 2 <= machines:
            self._since_s = None
            self._dark = self._dark & unheard if now_s < self._return_until_s else frozenset()
            return False
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._since_s >= self._limits.outage_s:
            self._dark, self._return_until_s = unheard, now_s + self._limits.outage_return_s
        return True


def is_watched(observation: Observation) -> bool:
    """No launcher of ours runs the job."""
    return all(view.launcher_age_s is None for view in observation.fleet.values())
