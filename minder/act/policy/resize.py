"""A job that goes on with fewer machines than it has at full size, and grows again. Pure.

Where no standby is left, an eviction takes a whole replica out instead of waiting, as long as `min_machines` stay and the checkpoint can
be read by another number of ranks. It is an eviction like every other: budgets, breaker, pause, approval and dry run hold. A job that is
short takes in standbys that are ready with its next eviction or restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minder.act.policy.case import Case
from minder.model.decision import Decision, Size
from minder.model.errors import BadInputError
from minder.model.replicas import Replicas

__all__ = ["fewer", "is_short", "joining", "with_joins"]


def fewer(case: Case, ready: Sequence[str]) -> Size | str:
    """The job's size once the machines of this case and those planned before it are gone and `ready` has filled what it can; or why it
    cannot go on with so few, "" where the site does not want it at all."""
    sizes = case.context.sizes
    if sizes is None:
        return ""
    if sizes.refused:
        return f"the job does not go on with fewer machines: {sizes.refused}"
    try:
        replicas = Replicas.of(sizes.parallelism, case.context.job.rank_machine)
        left = replicas.refit({*case.machines, *case.planned}, [*case.taken, *ready]).machines
    except BadInputError as error:
        return f"the job does not go on with fewer machines: {error}"
    if left < sizes.least:
        return f"the job would go on with {left} machines, fewer than min_machines = {sizes.least}"
    return Size(left, sizes.full)


def is_short(case: Case) -> bool:
    """Whether the job runs on fewer machines than at full size, and may run at another size."""
    sizes = case.context.sizes
    return sizes is not None and not sizes.refused and len(case.context.job.machines) < sizes.full


def joining(case: Case, ready: Sequence[str]) -> tuple[str, ...]:
    """Standbys that make the job larger, in whole units, and no larger than at full size. ready: those that are free."""
    sizes = case.context.sizes
    if sizes is None or not is_short(case):
        return ()
    try:
        unit = Replicas.of(sizes.parallelism, case.context.job.rank_machine).machines
    except BadInputError:
        return ()
    room = min(sizes.full - len(case.context.job.machines), len(ready)) // unit * unit
    return tuple(ready[:room])


def with_joins(decision: Decision, case: Case, ready: Sequence[str]) -> Decision:
    """An eviction that fills every place, or a restart, takes in standbys that are left over. ready: those that may take a place."""
    if decision.action not in ("evict", "restart") or decision.size is not None:
        return decision
    joins = joining(case, [name for name in ready if name not in decision.replacements])
    if not joins or case.context.sizes is None:
        return replace(decision, joins=())
    size = Size(len(case.context.job.machines) + len(joins), case.context.sizes.full)
    return replace(decision, joins=joins, size=size, stages=(*decision.stages, f"size: {', '.join(joins)} in"))
