"""Which standby takes which place: the one rule for racks, switches and the spread of the job's groups. Pure.

1. A standby that was chosen before keeps its place, and one that was tried for a failure within the day is used last.
2. One that its probes have proven comes before one of which nothing is known yet, and that before a slow one.
3. Where the trouble may be that of a rack or a switch (silence, links, a hang, a slowdown), a standby that shares one with a machine that
   leaves is used last: it may be cut off by the same fault. Evidence of the machine's own, an Xid or wrong numbers, leaves no such doubt.
4. Then the standby that leaves the spread of the job's communication groups as it is (minder.model.spread), or adds least to it.
5. Then one that shares nothing with the machines that leave; then the order of the configuration.

Two accused machines behind one switch are another matter: `shared_domain` stops the eviction before a standby is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from minder.act.policy.case import Case
from minder.model.errors import BadInputError
from minder.model.spread import Spread, block_kind

__all__ = ["choose", "near"]

_OWN_CAUSES = ("explicit", "numeric")


def choose(case: Case, ready: Sequence[str], wanted: int) -> tuple[str, ...]:
    """A standby for each of the first `wanted` machines of the case, in their order. ready: those that may take a place."""
    left, chosen = list(ready), list[str]()
    cost = _spread_cost(case) if len(ready) > 1 else _no_cost
    for machine in case.machines[:wanted]:
        if not left:
            break
        best = min(left, key=lambda standby: _key(case, machine, standby, cost, ready.index(standby)))
        left.remove(best)
        chosen.append(best)
    return tuple(chosen)


def near(case: Case, standby: str) -> bool:
    """Whether it shares a domain with a machine that leaves its place."""
    own = case.context.domains.get(standby, {})
    others = [case.context.domains.get(machine, {}) for machine in case.machines]
    return any(kind in own and own[kind] == other.get(kind) for other in others for kind in case.config.domain_kinds)


_Cost = Callable[[str, str], tuple[int, int]]


def _key(case: Case, machine: str, standby: str, cost: _Cost, place: int) -> tuple[bool, bool, int, bool, tuple[int, int], bool, int]:
    shares = near(case, standby)
    first = (standby not in case.preferred, case.was_tried(standby), case.context.standby_turns.get(standby, 0))
    return (*first, shares and _may_be_shared(case), cost(machine, standby), shares, place)


def _may_be_shared(case: Case) -> bool:
    """Whether the fault may be that of a rack or switch."""
    return case.trouble == "network" or case.verdict.cause not in _OWN_CAUSES


def _spread_cost(case: Case) -> _Cost:
    """Nothing is known of the spread where no machine names a block, or the job's layout is not known: then all are equal."""
    context = case.context
    kind = block_kind(context.domains, context.job.machines)
    if kind is None or context.parallelism is None:
        return _no_cost
    blocks = {machine: found[kind] for machine, found in context.domains.items() if kind in found}
    try:
        spread = Spread.of(context.parallelism.sized(len(context.job.rank_machine)), context.job.rank_machine, blocks)
    except BadInputError:
        return _no_cost
    return spread.grows_by


def _no_cost(machine: str, standby: str) -> tuple[int, int]:
    return 0, 0
