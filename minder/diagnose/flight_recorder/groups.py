"""Which ranks make up each process group, from what all dumps say together and, where they do not (gloo), from the topology."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from minder.diagnose.flight_recorder.records import Group, RankDump
from minder.model.topology import Parallelism

__all__ = ["groups_of_ranks", "resolve_groups", "with_local_peers", "world_of"]

_DEFAULT_NAMES = {"0", "default_pg", ""}


def world_of(dumps: Mapping[int, RankDump], unreadable: Iterable[int], parallelism: Parallelism | None) -> tuple[int, ...]:
    """Every rank that the job has: by the topology, by the groups, by the files. Files from 0 on leave no gap."""
    if parallelism is not None and parallelism.world_size > 1:
        return tuple(range(max([parallelism.world_size - 1, *dumps, *unreadable]) + 1))
    known = {rank for dump in dumps.values() for group in dump.groups for rank in group.ranks}
    seen = {*dumps, *unreadable}
    if not known and 0 in seen and max(seen) < 4 * len(seen) + 8:
        known = set(range(max(seen) + 1))
    return tuple(sorted(known | seen))


def resolve_groups(dumps: Mapping[int, RankDump], world: Sequence[int], parallelism: Parallelism | None) -> list[Group]:
    """Every group that some rank names, once. A name that stands for other ranks on other machines gives several groups."""
    configured: dict[tuple[str, tuple[int, ...]], Group] = {}
    for dump in dumps.values():
        for group in dump.groups:
            configured.setdefault((group.name, group.ranks), group)
    found = list(configured.values())
    held = {(group.name, rank) for group in found for rank in group.ranks}
    loose: dict[tuple[str, str], set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        for name, description in zip(dump.names, dump.descriptions, strict=True):
            if (name, rank) not in held:
                loose[(name, description)].add(rank)
    return found + [
        Group(name, description, _fill(name, description, ranks, world, parallelism)) for (name, description), ranks in loose.items()
    ]


def groups_of_ranks(groups: Sequence[Group]) -> dict[tuple[str, int], int]:
    """Index of the group that a rank means by a name."""
    return {(group.name, rank): index for index, group in reversed(list(enumerate(groups))) for rank in group.ranks}


def with_local_peers(dumps: Mapping[int, RankDump], groups: Sequence[Group]) -> dict[int, RankDump]:
    """The dumps with their messages' peers as numbers inside the group. Titles say so, except where one calls the rank itself by its
    number in the job, which is not its number in the group."""
    index = groups_of_ranks(groups)
    found = dict(dumps)
    for rank, dump in dumps.items():
        peer_E = dump.peer_E.copy()
        for number, name in enumerate(dump.names):
            ranks = groups[index[(name, rank)]].ranks if (name, rank) in index else ()
            if dump.sides.get(name) == frozenset((rank,)) and rank in ranks and ranks.index(rank) != rank:
                places = {global_rank: place for place, global_rank in enumerate(ranks)}
                rows = np.flatnonzero((dump.name_E == number) & (dump.peer_E >= 0))
                peer_E[rows] = [places.get(peer, -1) for peer in dump.peer_E[rows].tolist()]
        if (peer_E != dump.peer_E).any():
            found[rank] = replace(dump, peer_E=peer_E)
    return found


def _fill(name: str, description: str, seen: set[int], world: Sequence[int], parallelism: Parallelism | None) -> tuple[int, ...]:
    """The ranks of a group that was not configured: the world for the default group; else the smallest parallel group of the job
    that holds all ranks which used it; else those ranks."""
    if description == "default_pg" or (name in _DEFAULT_NAMES and description in ("", "undefined")):
        return tuple(world)
    if parallelism is None or max(seen) >= parallelism.world_size:
        return tuple(sorted(seen))
    candidates = [parallelism.group(axis, min(seen)) for axis, size in parallelism.axes() if size > 1]
    stages = parallelism.group("pp", min(seen))
    candidates.append(tuple(rank for rank in world if parallelism.coordinates(rank)["pp"] == stages.index(min(seen))))
    fitting = [ranks for ranks in candidates if seen <= set(ranks)]
    return min(fitting, key=len) if fitting and len(seen) > 1 else tuple(sorted(seen))
