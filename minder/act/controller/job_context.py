"""What the policy must know of a job besides its past: who waits, who is dead or lost, what the job's speed is."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from minder.act.controller.remaining import remaining_s
from minder.act.controller.state import JobState
from minder.act.controller.unsaved import CheckpointLook, restart_s, unsaved_s
from minder.act.controller.watched import WatchedJob
from minder.act.policy.case import breaker_limit
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.trust import distrusted
from minder.act.recovery.restart import why_not_waiting
from minder.diagnose.job_mode.tracker import JobTracker
from minder.model.observation import MachineView
from minder.model.topology import Topology
from minder.record.incidents import Ledger
from minder.wire.fleet import Fleet

__all__ = ["JobWork", "context_maker", "isolated_group"]

_ANSWERS_S = 3.0


class JobWork:
    """What of the job's work is saved in `checkpoint_dir` (None: unknown where), whether that is local to each machine, and the step at
    which the job is done (None: unknown)."""

    def __init__(self, checkpoint_dir: str | None, total_steps: int | None = None, is_local: bool = False) -> None:
        self.checkpoints = CheckpointLook(checkpoint_dir)
        self.total_steps = total_steps
        self.is_local = is_local


def isolated_group(topology: Topology, config: PolicyConfig) -> int:
    """Machines of the largest parallel group that may be evicted as a whole: no more than the breaker lets pass, or half of the job."""
    machines = len(topology.machines)
    return topology.largest_group(min(breaker_limit(config, machines), machines // 2))


def context_maker(
    name: str,
    topology: Topology,
    config: PolicyConfig,
    sources: tuple[JobTracker, Fleet, Ledger],
    watched: WatchedJob | None,
    work: JobWork,
) -> Callable[[JobState, Sequence[str], float], PolicyContext]:
    """What makes the context of one tick from the state, the standbys and the time (unix seconds)."""
    tracker, fleet, ledger = sources
    domains, group = topology.domains, isolated_group(topology, config)

    def unproven(now_s: float) -> Mapping[str, str]:
        return distrusted(ledger.history(name, now_s), config, now_s)

    def make(state: JobState, standbys: Sequence[str], now_s: float) -> PolicyContext:
        views = fleet.views()
        in_job = set(state.rank_machine.values())
        left = Counter(machine for rank, machine in state.rank_machine.items() if (state.generation, rank) not in state.finished)
        dead = any(_running(views[machine], state.generation) < ranks for machine, ranks in left.items())
        ages = {machine: views[machine].launcher_age_s for machine in in_job}
        lost = frozenset(machine for machine, age_s in ages.items() if age_s is None or age_s > _ANSWERS_S)
        typical_s = tracker.steps.typical_s
        recent_s = tracker.steps.recent_s(now_s, tracker.limits.recent_s)
        known = math.isfinite(typical_s) and math.isfinite(recent_s) and recent_s > 0
        return PolicyContext(
            now_s=now_s,
            job=state.view(standbys),
            standbys_ready=tuple(standbys),
            domains={machine: found for machine, found in domains.items() if found},
            gpus=len(state.rank_machine) or 1,
            largest_group=group,
            answering=frozenset(machine for machine, view in views.items() if _answers(view)),
            since_checkpoint_s=unsaved_s(tracker, work.checkpoints.newest_step, config.assumed_unsaved_s),
            expected_restart_s=restart_s(tracker, math.inf if watched is not None else state.generation_start_s),
            workers_dead=dead and state.phase in ("running", "starting"),
            machines_lost=lost,
            other_jobs=_other_jobs(fleet.jobs(), {name} | (watched.names if watched is not None else set())),
            suspects=_less_returned(ledger.suspects(now_s - config.domain_window_s), state.returned_s),
            remaining_s=remaining_s(tracker, work.total_steps, now_s),
            standbys_out=_standbys_out(state, views, standbys, now_s, unproven) if watched is None else {},
            restart_refused="" if watched is None else "minder only watches this job: whoever started it restarts it",
            speed_lost_share=max(0.0, 1.0 - typical_s / recent_s) if known else None,
            ranks_fixed=_fixed(watched, work),
        )

    return make


def _fixed(watched: WatchedJob | None, work: JobWork) -> str:
    """Why ranks cannot move to other machines, "" where they can."""
    if watched is not None:
        return "the job is only watched, so its ranks cannot be moved"
    return 'checkpoints are local to each machine (checkpoints = "local"), so ranks cannot move' if work.is_local else ""


def _standbys_out(
    state: JobState,
    views: Mapping[str, MachineView],
    ready: Sequence[str],
    now_s: float,
    unproven: Callable[[float], Mapping[str, str]],
) -> dict[str, str]:
    """Machines outside the job that are not barred from it and cannot take a place now, and why not. unproven: machines that pass an
    offline test first; asked only where one waits that is not ready."""
    taken = {*state.rank_machine.values(), *state.barred, *ready}
    reasons = {machine: why_not_waiting(view, now_s) for machine, view in views.items() if machine not in taken}
    if not all(reasons.values()):
        reasons = {machine: why or unproven(now_s).get(machine, "") for machine, why in reasons.items()}
    return {machine: why for machine, why in reasons.items() if why}


def _less_returned(suspects: Mapping[str, float], returned_s: Mapping[str, float]) -> dict[str, float]:
    """An operator who gives a machine back says that it is fit: what it was accused of before no longer counts."""
    return {machine: time_s for machine, time_s in suspects.items() if time_s > returned_s.get(machine, -math.inf)}


def _answers(view: MachineView) -> bool:
    return any(age_s is not None and age_s <= _ANSWERS_S for age_s in (view.agent_age_s, view.launcher_age_s))


def _running(view: MachineView, generation: int) -> float:
    """Ranks of this generation that run on a machine: the place of a dead worker may hold a fresh one, of no generation yet.
    Of a machine without a launcher nothing is known: infinite."""
    if view.launcher_age_s is None:
        return math.inf
    return sum(worker.generation == generation and worker.state == "running" for worker in view.workers)


def _other_jobs(jobs: Mapping[str, Sequence[str]], own: Set[str]) -> dict[str, tuple[str, ...]]:
    """Machine to whose jobs would die with it too."""
    others = {machine: tuple(name for name in names if name not in own) for machine, names in jobs.items()}
    return {machine: names for machine, names in others.items() if names}
