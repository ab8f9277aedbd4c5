"""What the policy must know of a job besides its past: who waits, who is dead or lost, what a restart costs, what its engine says.

The engine is asked beside the tick: who is free, who is held by others, who else runs there. What is too old counts as not known: then
nothing is taken that needs the engine.
"""

from __future__ import annotations

import math
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path

from minder.act.actuators.contract import Engine, EngineSnapshot
from minder.act.controller.replaying import can_replay
from minder.act.controller.standby_tests import Proofs
from minder.act.controller.state import JobState
from minder.act.controller.watched import WatchedJob
from minder.act.policy.case import breaker_limit
from minder.act.policy.config import PolicyConfig
from minder.act.policy.context import PolicyContext, Sizes
from minder.act.policy.ladder import OFFERED, WITH_LAUNCHERS
from minder.act.policy.trust import distrusted
from minder.act.recovery.restart import why_not_waiting
from minder.diagnose.job_mode.tracker import JobTracker
from minder.diagnose.verdicts.hang import HangRule, Standing
from minder.diagnose.verdicts.judge import Judge
from minder.model.errors import CheckpointError, MinderError
from minder.model.observation import MachineView
from minder.model.topology import Parallelism, Topology
from minder.record.incidents import Ledger
from minder.wire.fleet import Fleet

__all__ = [
    "CheckpointLook",
    "ContextMaker",
    "EngineWatch",
    "JobWork",
    "context_maker",
    "isolated_group",
    "remaining_s",
    "restart_s",
    "standing_of",
    "unsaved_s",
    "whole_context",
    "with_engine",
]

_ANSWERS_S = 3.0
_FOLDER_ANSWERS_S = 2.0  # a file server that hangs may be the very trouble that is to be decided on
_SHORTEST_RESTART_S = 10.0
ContextMaker = Callable[[JobState, Sequence[str], float], PolicyContext]
_EVERY_S = 5.0
_LOOK_HOLDS_S = 60.0
_DAY_S = 86_400.0
_REQUEUE_S = 120.0  # a job that the scheduler starts anew: its old processes end, others start, torch is imported


class JobWork:
    """What of the job's work is saved in `checkpoint_dir` (None: unknown where), where checkpoints lie ("shared", "local" to each machine,
    "memory": every step, at peers), and the step at which the job is done (None: unknown). sizes: how small the job may become (None: it
    keeps its size). any_size: whether its checkpoints are read at another size; None: as they say themselves."""

    def __init__(
        self, checkpoint_dir: str | None, total_steps: int | None = None, checkpoints: str = "shared", sizes: Sizes | None = None,
        any_size: bool | None = None,
    ) -> None:  # fmt: skip
        self.checkpoints = CheckpointLook(checkpoint_dir)
        self.total_steps = total_steps
        self.is_local = checkpoints == "local"
        self.in_memory = checkpoints == "memory"
        self._sizes, self._any_size = sizes, any_size

    def sizes(self) -> Sizes | None:
        """With why the job must keep its size now, if it must."""
        if self._sizes is None or self._any_size is True:
            return self._sizes
        if self._any_size is False:
            return replace(self._sizes, refused="checkpoints_any_size = false in job.toml")
        return replace(self._sizes, refused=self.checkpoints.why_same_size())

    def unsaved_s(self, tracker: JobTracker, assumed_s: float) -> float:
        """Seconds of work that a restart would lose: of a job that keeps every step in memory, one step."""
        if self.in_memory and math.isfinite(tracker.steps.typical_s):
            return tracker.steps.typical_s
        return unsaved_s(tracker, self.checkpoints.newest_step, assumed_s)


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
    proofs = Proofs(ledger)
    offered = _Offered(fleet, topology.parallelism)

    def unproven(now_s: float) -> Mapping[str, str]:
        proofs.refresh()
        failed = {machine: why for machine in fleet.machines if (why := proofs.of(machine).keeps_out)}
        return failed | distrusted(ledger.history(name, now_s), config, now_s)

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
            since_checkpoint_s=work.unsaved_s(tracker, config.assumed_unsaved_s),
            expected_restart_s=restart_s(tracker, math.inf if watched is not None else state.generation_start_s),
            workers_dead=(dead and state.phase in ("running", "starting")) or state.phase == "suspended",
            machines_lost=lost,
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


class CheckpointLook:
    """The step of the newest complete checkpoint in a folder, and whether another number of ranks can read it; what was known before,
    where the folder does not answer in time."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._step: int | None = None
        self._written_by: list[tuple[int, int]] | None = None
        self._saved: tuple[tuple[int, str], ...] | None = None
        self._same_size = "where the job saves is not known: set checkpoint_dir, or checkpoints_any_size"
        if folder is not None:
            self._same_size = f"its checkpoints in {folder} could not be looked at yet"
        self._thread: threading.Thread | None = None

    def newest_step(self) -> int | None:
        """None: no complete checkpoint is known."""
        self._look()
        return self._step

    def written_by(self) -> list[tuple[int, int]] | None:
        """(step, number of the version that wrote it) of each complete checkpoint, newest first; None where that is not known."""
        self._look()
        return self._written_by

    def saved(self) -> tuple[tuple[int, str], ...] | None:
        """(step, batches that its run left out) of each complete checkpoint of minder's; None where that is not known, or others wrote
        there: theirs do not say which batches they have learned from. As of the last look."""
        if self._thread is None:
            self._look()
        return self._saved

    def why_same_size(self) -> str:
        """Why the job cannot be resumed by another number of ranks, "" if it can; as of the last look."""
        if self._thread is None:
            self._look()
        return self._same_size

    def _look(self) -> None:
        if self._folder is None:
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._read, args=(self._folder,), name="minder-checkpoints", daemon=True)
            self._thread.start()
            self._thread.join(_FOLDER_ANSWERS_S)

    def _read(self, folder: Path) -> None:
        from minder.edge.checkpoint.manifest import complete_checkpoints, why_same_size
        from minder.edge.checkpoint.site import newest_site_step, site_checkpoints

        try:
            found = complete_checkpoints(folder)
            self._written_by = [(item.step, item.update) for item in found]
            known = bool(found) or not (folder.is_dir() and site_checkpoints(folder))
            self._saved = tuple((item.step, item.skipped) for item in found) if known else None
            self._step, self._same_size = newest_site_step(folder) if folder.is_dir() else None, why_same_size(folder)
        except (CheckpointError, OSError) as error:
            self._same_size = f"its checkpoints in {folder} cannot be looked at: {error}"


def unsaved_s(tracker: JobTracker, newest_step: Callable[[], int | None], assumed_s: float) -> float:
    """Seconds of work since the newest checkpoint: from its manifest, else since the end of the last declared checkpoint phase, else
    `assumed_s`. Time in which the job stood is no work."""
    saved_step = newest_step()
    if saved_step is not None and math.isfinite(tracker.steps.step):
        step_s = tracker.steps.typical_s
        return max(0.0, tracker.steps.step - saved_step) * (step_s if math.isfinite(step_s) else 1.0)
    if math.isfinite(tracker.phases.saved_s) and math.isfinite(tracker.steps.advanced_s):
        return max(0.0, tracker.steps.advanced_s - tracker.phases.saved_s)
    return assumed_s


def restart_s(tracker: JobTracker, generation_start_s: float) -> float:
    """As long as the present generation took to its first step, and at least ten seconds."""
    if tracker.steps.first is None:
        return _SHORTEST_RESTART_S
    return max(_SHORTEST_RESTART_S, tracker.steps.first[1] - generation_start_s)


def remaining_s(tracker: JobTracker, total_steps: int | None, now_s: float) -> float | None:
    """Seconds: the steps that are left, each as long as a step takes at present, and never less than one took while the job was well.

    None where it cannot be known: no declared total, a job that has gone beyond it (the number is wrong), fewer than five steps timed.
    """
    left = math.nan if total_steps is None else total_steps - tracker.steps.step
    typical_s = tracker.steps.typical_s
    if not math.isfinite(left) or left < 0 or not math.isfinite(typical_s):
        return None
    recent_s = tracker.steps.recent_s(now_s, tracker.limits.recent_s)
    return left * (max(typical_s, recent_s) if math.isfinite(recent_s) else typical_s)


class EngineWatch:
    """Looks at the engine every few seconds. `newest(now_s)`: what it last said, None if that is older than a minute (or never)."""

    def __init__(self, engine: Engine, machines: Sequence[str], every_s: float = _EVERY_S, restarts: bool = False) -> None:
        """restarts: minder may have the job started again without taking a machine away."""
        self.engine = engine
        self._restarts = restarts
        self._retries: str | None = None  # what of the job's own starts it again; None: not asked yet
        self._counted: int | None = None
        self._requeued_s: deque[float] = deque(maxlen=1000)
        self._machines = tuple(machines)
        self._every_s = every_s
        self._look: EngineSnapshot | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minder-engine-watch", daemon=True)
        self.trouble = ""  # why it does not answer now

    def start(self) -> None:
        self.look()
        self._thread.start()

    def close(self) -> None:
        """May be called twice, and without `start`; a call that still runs is left to end by its deadline."""
        self._ending.set()

    def newest(self, now_s: float) -> EngineSnapshot | None:
        look = self._look
        return look if look is not None and abs(now_s - look.time_s) <= _LOOK_HOLDS_S else None

    def look(self) -> None:
        try:
            self._look = look = self.engine.look(self._machines)
            if self._restarts and self._retries is None:
                self._retries = self.engine.own_retries()
            self._count(look)
            self.trouble = ""
        except MinderError as error:
            self.trouble = str(error)

    def restarts(self) -> int | None:
        """How often the engine has started the job again; None: unknown."""
        return None if self._look is None else self._look.restarts

    def refuses_restart(self, now_s: float, most: int) -> str:
        """Why the job is not to be started again as it is, "" if nothing speaks against it. most: restarts within a day, by whatever
        for them: one that Slurm itself, or a person, has requeued so often is no restart's to mend."""
        look = self.newest(now_s)
        if not self._restarts:
            return 'the job\'s owner restarts it: set restart = "requeue" in [engine] to have minder do it'
        if look is None:
            return f"{self.engine.name} does not answer: {self.trouble or 'it was not asked yet'}"
        if look.refusal:
            return look.refusal
        if self._retries is None or self._retries:
            return f"one owner of retries: {self._retries or 'whether the job starts itself again is not known yet'}"
        lately = sum(now_s - time_s <= _DAY_S for time_s in self._requeued_s)
        return f"{self.engine.name} has started it again {lately} times within a day, and max_restarts is {most}" if lately >= most else ""

    def _count(self, look: EngineSnapshot) -> None:
        if look.restarts is None:
            return
        if self._counted is not None:
            self._requeued_s.extend([look.time_s] * max(0, look.restarts - self._counted))
        self._counted = look.restarts

    def _run(self) -> None:
        while not self._ending.wait(self._every_s):
            self.look()


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
