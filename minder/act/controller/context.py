"""What the policy must know of a job besides its past: who waits, who is dead or lost, what a restart costs, what its engine says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from minder.act.actuators.contract import Engine, EngineSnapshot
from minder.act.controller.diagnosis.replaying import can_replay
from minder.act.controller.engine.watch import EngineWatch
from minder.act.controller.orders.job_work import JobWork, remaining_s, restart_s
from minder.act.controller.reading.watched import WatchedJob
from minder.act.controller.standbys.standby_tests import Proofs
from minder.act.controller.state import JobState
from minder.act.policy.case import breaker_limit
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext
from minder.act.policy.ladder import OFFERED, WITH_LAUNCHERS
from minder.act.policy.trust import distrusted
from minder.act.recovery.restart import why_not_waiting
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.hang import HangRule, Standing
from minder.diagnose.verdicts.judge import Judge
from minder.model.observation import MachineView
from minder.model.topology import Parallelism, Topology
from minder.record.incidents import Ledger
from minder.wire.fleet import Fleet

__all__ = [
    "ContextMaker",
    "Sources",
    "context_maker",
    "isolated_group",
    "standing_of",
    "whole_context",
    "with_engine",
]

_ANSWERS_S = 3.0
ContextMaker = Callable[[JobState, Sequence[str], float], PolicyContext]
_REQUEUE_S = 120.0  # a job that the scheduler starts anew: its old processes end, others start, torch is imported


def isolated_group(topology: Topology, config: PolicyConfig) -> int:
    """Machines of the largest parallel group that may be evicted as a whole: no more than the breaker lets pass, or half of the job."""
    machines = len(topology.machines)
    return topology.largest_group(min(breaker_limit(config, machines), machines // 2))


@dataclass(frozen=True, slots=True)
class Sources:
    """What a context is read from: what the job is doing, who answers, what happened."""

    tracker: JobTracker
    fleet: Fleet
    ledger: Ledger


def context_maker(
    name: str, topology: Topology, config: PolicyConfig, sources: Sources, watched: WatchedJob | None, work: JobWork
) -> Callable[[JobState, Sequence[str], float], PolicyContext]:
    """What makes the context of one tick from the state, the standbys and the time (unix seconds)."""
    tracker, fleet, ledger = sources.tracker, sources.fleet, sources.ledger
    domains, group = topology.domains, isolated_group(topology, config)
    proofs = Proofs(ledger)
    offered = _Offered(fleet, topology.parallelism)

    def unproven(now_s: float) -> Mapping[str, str]:
        proofs.refresh()
        failed = {machine: why for machine in fleet.machines if (why := proofs.of(machine).keeps_out)}
        return failed | distrusted(ledger.history(name, now_s), config, now_s)

    def turns(standbys: Sequence[str]) -> dict[str, int]:
        proofs.refresh()
        return {machine: proofs.of(machine).turn for machine in standbys}

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
            standby_turns=turns(standbys) if len(standbys) > 1 else {},
            domains={machine: found for machine, found in domains.items() if found},
            gpus=len(state.rank_machine) or 1,
            largest_group=group,
            answering=frozenset(machine for machine, view in views.items() if _answers(view)),
            since_checkpoint_s=work.unsaved_s(tracker, config.assumed_unsaved_s, map(fleet.launcher_state, sorted(in_job))),
            expected_restart_s=restart_s(tracker, math.inf if watched is not None else state.generation_start_s),
            workers_dead=(dead and state.phase in ("running", "starting")) or state.phase == "suspended",
            machines_lost=lost,
            by_launchers=watched is None,
            other_jobs=_other_jobs(fleet.jobs(), {name} | (watched.names if watched is not None else set())),
            suspects=_less_returned(ledger.suspects(now_s - config.domain_window_s), state.returned_s),
            remaining_s=remaining_s(tracker, work.total_steps, now_s),
            standbys_out=_standbys_out(state, views, standbys, now_s, unproven) if watched is None else {},
            restart_refused="" if watched is None else "minder only watches this job: its owner restarts it",
            speed_lost_share=max(0.0, 1.0 - typical_s / recent_s) if known else None,
            ranks_fixed=_fixed(watched, work),
            parallelism=topology.parallelism if watched is None else None,
            sizes=work.sizes() if watched is None else None,
            offers=OFFERED | (offered(state, in_job) if watched is None else frozenset()),
        )

    return make


class _Offered:
    """What of WITH_LAUNCHERS every launcher of the job says that it does: one of an earlier version does not. A replay also needs machines
    that make groups."""

    def __init__(self, fleet: Fleet, parallelism: Parallelism) -> None:
        self._fleet, self._parallelism = fleet, parallelism
        self._groups: tuple[int, bool] = (0, False)  # generation, and whether its machines make some

    def __call__(self, state: JobState, machines: Set[str]) -> frozenset[str]:
        said = [set(self._fleet.launcher_state(machine).get("offers") or ()) for machine in machines]
        every = set.intersection(*said) if said else set()
        found = WITH_LAUNCHERS - {"replay"} if "probes" in every else frozenset()
        return found | {"replay"} if "replay" in every and self._makes_groups(state) else found

    def _makes_groups(self, state: JobState) -> bool:
        if self._groups[0] != state.generation:
            self._groups = (state.generation, can_replay(self._parallelism, state.rank_machine))
        return self._groups[1]


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


def with_engine(make: ContextMaker, watch: EngineWatch, restarts_elsewhere: bool, max_restarts: int = 0) -> ContextMaker:
    """The policy's context, completed. max_restarts: how often within a day a watched job may be started again as it is.
    restarts_elsewhere: an eviction has the engine start the job again on other machines, so those
    that it could use are the standbys; otherwise standbys are the job's own spares, without those that others hold."""

    def made(state: JobState, standbys: Sequence[str], now_s: float) -> PolicyContext:
        context = make(state, standbys, now_s)
        look = watch.newest(now_s)
        if restarts_elsewhere:
            context = replace(context, restart_refused=watch.refuses_restart(now_s, max_restarts))
        if look is None:
            silent = f"{watch.engine.name} does not answer: {watch.trouble or 'it was not asked yet'}"
            refused = dict.fromkeys(context.job.machines, silent) if restarts_elsewhere else {}
            return replace(context, standbys_ready=() if restarts_elsewhere else context.standbys_ready, engine_refuses=refused)
        ready = look.free if restarts_elsewhere else tuple(name for name in context.standbys_ready if name not in look.cordoned)
        return replace(
            context,
            standbys_ready=ready,
            other_jobs=_merged(context.other_jobs, look.neighbours),
            engine_refuses=_refusals(watch.engine, look, context.job.machines, restarts_elsewhere),
            expected_restart_s=_REQUEUE_S if restarts_elsewhere else context.expected_restart_s,
        )

    return made


def _refusals(engine: Engine, look: EngineSnapshot, machines: Sequence[str], restarts_elsewhere: bool) -> dict[str, str]:
    """Machine to why the engine, or the limit over all its jobs, does not let it be taken."""
    found: dict[str, str] = {}
    for machine in machines:
        others = sorted(name for name in look.cordoned_by_minder if name != machine)
        if restarts_elsewhere and look.refusal:
            found[machine] = look.refusal
        elif len(others) >= engine.max_held and machine not in look.cordoned:
            found[machine] = f"minder keeps {', '.join(others[:5])} out of {engine.name} already, and {engine.max_held} is the limit"
    return found


def _merged(one: Mapping[str, tuple[str, ...]], other: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {name: (*one.get(name, ()), *other.get(name, ())) for name in dict.fromkeys([*one, *other])}


def standing_of(judge: Judge) -> Callable[[], Standing | None]:
    """For how long the job has stood, by the rules in force."""
    return lambda: next((rule.standing for rule in judge.rules if isinstance(rule, HangRule)), None)


def whole_context(
    make: ContextMaker, watch: EngineWatch | None, watches: bool, policy: PolicyConfig, standing: Callable[[], Standing | None]
) -> ContextMaker:
    """The policy's context, with whether the job stands as a whole, and what its engine says. watches: others start the job."""

    def made(state: JobState, standbys: Sequence[str], now_s: float) -> PolicyContext:
        found = standing()
        return replace(make(state, standbys, now_s), hangs=found is not None and found.stood is not False)

    return made if watch is None else with_engine(made, watch, watches, policy.max_restarts)
