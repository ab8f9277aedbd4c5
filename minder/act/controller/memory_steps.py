"""Which steps a job has in its machines' memory, and on the disks to which it flushes, by what its launchers say of their caches (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["saved_steps"]

_Moment = tuple[int, int]  # generation, step: newer is greater


def saved_steps(states: Iterable[Mapping[str, Any]], world_size: int, lives: bool) -> tuple[tuple[int, str], ...] | None:
    """(step, batches that its run left out) of each step that the job can go on from, newest first. None where a launcher does not say
    what its cache holds: one of an earlier version, or a cache that does not answer.

    A step counts where every rank has a record of it somewhere. Machines are not asked at the same moment, so the memory's newest step
    counts as well, once every rank has anything there: what all ranks have in common is that step or one just before it, and what holds
    for a step holds for those before it. lives: the ranks train on, and the memory's older steps are gone before they could be loaded.
    """
    ranks_of: dict[tuple[str, _Moment], set[int]] = defaultdict(set)
    skipped: dict[_Moment, str] = {}
    for state in states:
        records = state.get("saved")
        if not isinstance(records, list):
            return None
        for item in records:
            if item["world_size"] == world_size:  # of another size it is cut differently
                moment = int(item["generation"]), int(item["step"])
                skipped[moment] = str(item["skipped"])
                for where in {str(item["where"]), "anywhere"}:
                    ranks_of[where, moment].add(int(item["rank"]))
    counted = "disk" if lives else "anywhere"
    found = {moment for (where, moment), ranks in ranks_of.items() if where == counted and len(ranks) == world_size}
    memory = {moment: ranks for (where, moment), ranks in ranks_of.items() if where == "memory"}
    if len(set().union(*memory.values())) == world_size:
        found.add(max(memory))
    return tuple((step, skipped[generation, step]) for generation, step in sorted(found, reverse=True))
