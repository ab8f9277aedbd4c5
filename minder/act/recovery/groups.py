"""Groups of a job's machines that run side by side, as in a replay: each with a generation and a store of its own.

Generations are numbers that only grow, and a store belongs to one of them. So groups that run at once take as many numbers in a row, in
their order: a late worker of one group meets no other group, the launchers' rule that a newer request wins holds as ever, and the job that
resumes takes the number after the last and closes every older store. The same call gives the same numbers and stores: it can be made again
after a crash. Two phases of a replay are two calls; the second begins after the first one's last generation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from minder.act.recovery.generation_plan import GenerationPlan
from minder.model.errors import RecoveryError

__all__ = ["plan_groups"]


def plan_groups(
    job: str,
    groups: Mapping[str, Mapping[int, str]],
    *,
    after: int,
    open_store: Callable[[int], tuple[str, int]],
    operation_id: str,
    environment: Mapping[str, str] | None = None,
) -> dict[str, GenerationPlan]:
    """Name of the group to its plan. groups: each group's own ranks (0 to its world size - 1) on machines. after: the newest generation
    that the ledger knows. open_store: `RendezvousHost.open`. Raises RecoveryError where a machine is in two groups, or ranks are missing.
    """
    counts = Counter(machine for ranks in groups.values() for machine in set(ranks.values()))
    twice = next((machine for machine, count in counts.items() if count > 1), None)
    if twice is not None:
        raise RecoveryError(f"{twice} is in two groups at once: a machine can run in one only")
    for name, ranks in groups.items():
        if sorted(ranks) != list(range(len(ranks))) or not ranks:
            raise RecoveryError(f"group {name} has the ranks {sorted(ranks)}: give 0 to {max(len(ranks) - 1, 0)}, each once")
    return {
        name: GenerationPlan(job, after + index, dict(ranks), *open_store(after + index), f"{operation_id}/{name}", dict(environment or {}))
        for index, (name, ranks) in enumerate(groups.items(), 1)
    }
