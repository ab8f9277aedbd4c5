"""Stages that ask whether so much may be taken: group size, budgets, breaker, standbys, other jobs, dry run."""

from __future__ import annotations

import math

from minder.act.policy.case import Case, Ruling, passes, stops
from minder.act.policy.choice import choose
from minder.act.policy.resize import fewer, joining
from minder.act.policy.trust import distrusted
from minder.model.decision import Reason, Size

__all__ = [
    "ASKED",
    "CRASH",
    "GROW",
    "HANG",
    "ORDER",
    "SKIP",
    "UPDATE",
    "breaker",
    "budgets",
    "dry_run",
    "engine",
    "group_size",
    "launchers",
    "ready_standbys",
    "shared_machine",
    "standbys",
    "would_diagnose",
    "would_replay",
    "would_restart",
]

HOUR_S, DAY_S = 3600.0, 86_400.0
# Sources of verdicts. All but the first ask for the restart of a job whose workers may live: it hangs, a person orders it, it is to grow.
CRASH, HANG, ORDER, GROW, UPDATE, SKIP = "crash", "hang", "order", "grow", "update", "skip"
ASKED = frozenset({ORDER, GROW, UPDATE, SKIP})  # of them those that are asked of a job that works
_MOST_TOLD = 4


def group_size(case: Case) -> Ruling:
    """A group goes as a whole or not at all. For want of standbys it waits, as a single machine does (`standbys`)."""
    size = len(case.machines)
    if size < 2:
        return passes()
    for name, limit in (("machines per hour", case.machine_limit), ("machines of the breaker", case.breaker_limit)):
        if size > limit:
            return stops("page", "group_too_large", f"{size} machines to evict, but {limit} {name}: never half a group")
    return passes(f"pass, {size} machines")


def budgets(case: Case) -> Ruling:
    """Evictions of this job: in its whole run, in the last day, and in the last hour, where machines have a limit of their own."""
    allowed, since_s = case.allowance, case.context.now_s - HOUR_S
    spans: tuple[tuple[Reason, str, float, int], ...] = (
        ("budget_job", "this run", -math.inf, allowed.job),
        ("budget_day", "the last day", case.context.now_s - DAY_S, allowed.day),
        ("budget_hour", "the last hour", since_s, allowed.hour),
    )
    for reason, span, begin_s, limit in spans:
        used = case.evictions_since(begin_s)
        if used + 1 > limit:
            return stops("page", reason, f"{used} evictions in {span}, one more would pass the limit of {limit}")
    gone, wanted = case.evicted_since(since_s), len(case.machines)
    if gone + wanted > case.machine_limit:
        detail = f"{gone} machines evicted in the last hour, {wanted} more would pass the limit of {case.machine_limit} machines"
        return stops("page", "budget_hour", detail)
    return passes()


def breaker(case: Case) -> Ruling:
    """Many machines out in a short time means that the watcher, or something that all share, is wrong."""
    used, wanted = case.evicted_since(case.context.now_s - case.config.breaker_window_s), len(case.machines)
    if used + wanted > case.breaker_limit:
        window = f"{case.config.breaker_window_s:.0f} s"
        return stops("page", "breaker", f"{used} evicted within {window}, {wanted} more would pass the breaker's {case.breaker_limit}")
    return passes()


def engine(case: Case) -> Ruling:
    """What the scheduler that owns the machines says against it: its own limits, or that it does not answer."""
    refused = [case.context.engine_refuses[machine] for machine in case.machines if machine in case.context.engine_refuses]
    return stops("page", "engine", refused[0]) if refused else passes()


def standbys(case: Case) -> Ruling:
    """Every place must be filled, or the job may go on without it. Which standby: minder.act.policy.choice."""
    ready, wanted = ready_standbys(case), len(case.machines)
    smaller = fewer(case, ready) if len(ready) < wanted else ""
    if len(ready) < wanted and isinstance(smaller, str):
        unfit = {standby: "it is accused itself" for standby in case.context.standbys_ready if standby in case.suspects}
        unproven = distrusted(case.history, case.config, case.context.now_s)
        unfit |= {standby: unproven[standby] for standby in case.context.standbys_ready if standby in unproven}
        out = [f"{standby}: {why}" for standby, why in {**unfit, **case.context.standbys_out}.items()]
        more = [f"{len(out) - _MOST_TOLD} more are not ready either"] if len(out) > _MOST_TOLD else []
        said = [f"{len(ready)} standbys are ready, {wanted} needed", *out[:_MOST_TOLD], *more, *([smaller] if smaller else [])]
        return stops("page", "no_standby", "; ".join(said))
    chosen = choose(case, ready, wanted)
    if isinstance(smaller, Size):
        return Ruling(f"pass, {', '.join(chosen) or 'no standby'} in: the job {smaller.words}", replacements=chosen, size=smaller)
    return Ruling(f"pass, {', '.join(chosen)} in", replacements=chosen)


def ready_standbys(case: Case) -> list[str]:
    """Standbys that may take a place. One that is on trial itself may be the machine that fails; one that was evicted again and again
    passes an offline test first."""
    used = {*case.machines, *case.planned, *case.taken, *case.suspects, *case.context.job.machines}
    unfit = {*case.history.barred, *case.on_trial, *used, *distrusted(case.history, case.config, case.context.now_s)}
    return [
        standby for standby in dict.fromkeys(case.context.standbys_ready) if standby not in unfit and not _in_maintenance(case, standby)
    ]


def _in_maintenance(case: Case, machine: str) -> bool:
    """People work on it now: it would not last."""
    rack, now_s = case.context.domains.get(machine, {}).get("rack"), case.context.now_s
    held = (window for window in case.history.maintenance if window.from_s <= now_s < window.until_s)
    return any(machine in window.machines or (rack is not None and rack in window.racks) for window in held)


def shared_machine(case: Case) -> Ruling:
    """Other jobs that run there would die too."""
    others = sorted({job for machine in case.machines for job in case.context.other_jobs.get(machine, ())} - {case.context.job.name})
    if others and not case.config.allow_shared_machines:
        return stops("page", "shared_machine", f"{', '.join(others)} would die too: set policy.allow_shared_machines to allow it")
    return passes(f"pass, {', '.join(others)} would die too" if others else "pass")


def dry_run(case: Case) -> Ruling:
    """Last, so that its line says what would really have been done."""
    if case.config.dry_run:
        return stops("page", "dry_run", f"dry run: would evict {', '.join(case.machines)}; --act turns evictions on")
    return passes()


def launchers(case: Case) -> Ruling:
    """A job starts again in place once the launchers of all its machines answer, or where one that is gone is replaced: until then a
    restart would fail, and count."""
    gone = sorted(case.context.machines_lost & set(case.context.job.machines)) if case.context.by_launchers else []
    if gone:
        more = f" and {len(gone) - _MOST_TOLD} more" if len(gone) > _MOST_TOLD else ""
        said = f"no answer from the launcher of {', '.join(gone[:_MOST_TOLD])}{more}"
        return stops("none", "launcher_gone", f"{said}: the job starts again once it answers, or without it")
    return passes()


def would_diagnose(case: Case) -> Ruling:
    """Last, as `dry_run`. The test ends workers that live: of a hang only while it lasts."""
    if case.context.restart_refused:
        return stops("page", "engine", case.context.restart_refused)
    if HANG in case.verdict.sources and not (case.context.hangs or case.context.workers_dead):
        return stops("none", "tier_too_low", "the job moves again: nothing to test")
    if case.config.dry_run:
        name, machines = case.context.job.name, len(case.context.job.machines)
        return stops("page", "dry_run", f"dry run: would diagnose {name}: test its {machines} machines while it stands; --act turns it on")
    return passes()


def would_replay(case: Case) -> Ruling:
    """Last, as `would_diagnose`, whose reasons hold here too."""
    ruling = would_diagnose(case)
    if ruling.reason == "dry_run":
        name, machines = case.context.job.name, len(case.context.job.machines)
        return stops("page", "dry_run", f"dry run: would replay {name} on groups of its {machines} machines; --act turns it on")
    return ruling


def would_restart(case: Case) -> Ruling:
    """The restart of a job whose workers live ends them: only with --act, and a hang only while it lasts. Dead workers are started again
    either way."""
    if case.context.restart_refused:
        return stops("page", "engine", case.context.restart_refused)
    lives = case.verdict.kind != "job" or not {HANG, *ASKED}.isdisjoint(case.verdict.sources)
    if case.context.workers_dead or not lives:
        return passes()
    if GROW in case.verdict.sources and not joining(case, ready_standbys(case)):
        return stops("none", "tier_too_low", "no standby is ready to join: nothing to restart for")
    if UPDATE in case.verdict.sources and not case.context.update_waits:
        return stops("none", "tier_too_low", "the update is applied already: nothing to restart for")
    if SKIP in case.verdict.sources and (case.context.skips is None or not case.context.skips.waits):
        return stops("none", "tier_too_low", "the order is applied already, or failed: nothing to restart for")
    if HANG in case.verdict.sources and not case.context.hangs:
        return stops("none", "tier_too_low", "the job moves again: nothing to restart")
    if case.config.dry_run:
        name = case.context.job.name
        said = f"skip batches of {name} and restart it" if SKIP in case.verdict.sources else f"restart {name} in place"
        return stops("page", "dry_run", f"dry run: would {said}; --act turns restarts of living jobs on")
    return passes()
