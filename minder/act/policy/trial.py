"""Stages of a trial swap: another machine takes the suspect's ranks, to see whether the failure follows them.

The suspect is neither barred nor evicted and costs no budget of evictions; the restart counts as one. A standby takes its ranks; without
one, two machines of the job exchange their whole blocks of ranks.
"""

from __future__ import annotations

from collections import Counter

from minder.act.policy.case import Case, Ruling, passes, stops
from minder.act.policy.choice import choose, near
from minder.act.policy.limits import HANG, ready_standbys
from minder.act.policy.trust import distrusted

__all__ = ["dry_run", "partner", "possible"]


def possible(case: Case) -> Ruling:
    """Whether ranks can move at all here."""
    machine = case.machines[0]
    if not case.config.trial_s:
        return stops("page", "no_trial", f"trials are off (policy.trial_s = 0): look at {machine} and at rank {_ranks(case)}")
    if case.context.ranks_fixed:
        return stops("page", "no_trial", f"{case.context.ranks_fixed}: whether it follows the rank or {machine} is for a person to try")
    return passes()


def partner(case: Case) -> Ruling:
    """Which machine takes the ranks: a standby (minder.act.policy.choice); else a machine of the job with as many ranks."""
    standbys = ready_standbys(case)
    if standbys:
        (chosen,) = choose(case, standbys, 1)
        return Ruling(f"pass, {chosen} takes the ranks of {case.machines[0]}", replacements=(chosen,))
    sizes = Counter(case.context.job.rank_machine.values())
    unproven = distrusted(case.history, case.config, case.context.now_s)
    unfit = {*case.machines, *case.planned, *case.taken, *case.suspects, *case.context.machines_lost, *case.on_trial, *unproven}
    members = [name for name in case.context.job.machines if name not in unfit and sizes[name] == sizes[case.machines[0]]]
    if not members:
        return stops("page", "no_trial", f"no standby and no other machine can take the ranks of {case.machines[0]}")
    chosen = min(members, key=lambda name: (name not in case.preferred, near(case, name), members.index(name)))
    return Ruling(f"pass, no standby: {chosen} and {case.machines[0]} exchange their ranks", replacements=(chosen,))


def dry_run(case: Case) -> Ruling:
    """Last. A swap for a hang only while it lasts: it ends workers that live."""
    if HANG in case.verdict.sources and not (case.context.hangs or case.context.workers_dead):
        return stops("none", "tier_too_low", "the job moves again: nothing to try")
    if case.config.dry_run:
        return stops("page", "dry_run", f"dry run: would exchange {case.machines[0]} on trial; --act turns it on")
    return passes()


def _ranks(case: Case) -> str:
    return ", ".join(str(rank) for failure in case.verdict.failures for rank in failure.ranks)
