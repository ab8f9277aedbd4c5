"""Which step a job goes on from: the newest of which a record of every rank is left somewhere, wherever its parts lie (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from minder.edge.cache.record import RecordName

__all__ = ["Copy", "Holding", "choose_step"]


@dataclass(frozen=True, slots=True)
class Holding:
    """What one cache has: its address, and for each record its world size and where it lies, "memory" or "disk"."""

    url: str
    records: Mapping[tuple[RecordName, str], int]


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of one record. own: whether it lies in the cache of the rank that needs it."""

    name: RecordName
    url: str
    where: str
    own: bool


def choose_step(
    holdings: Sequence[Holding], world_size: int, bad: Collection[tuple[RecordName, str, str]] = ()
) -> dict[int, list[Copy]] | None:
    """For each rank the copies of its record of the newest step that is complete for every rank, the nearest first: own memory, a peer's
    memory, own disk, a peer's disk. None where no step is complete.

    holdings: each rank's cache, in the order of the ranks. bad: (record, url, where) of copies that turned out damaged or out of reach.
    Records of a job of another size do not count: its shards are cut differently.
    """
    found: dict[tuple[int, int], dict[int, set[tuple[str, str]]]] = defaultdict(lambda: defaultdict(set))
    for holding in holdings:
        for (name, where), size in holding.records.items():
            if size == world_size and (name, holding.url, where) not in bad:
                found[name.step, name.generation][name.rank].add((holding.url, where))
    complete = [moment for moment, ranks in found.items() if all(rank in ranks for rank in range(world_size))]
    if not complete:
        return None
    step, generation = newest = max(complete)
    return {
        rank: _nearest(RecordName(step, generation, rank), found[newest][rank], holdings[rank].url) for rank in range(world_size)
    }  # fmt: skip


def _nearest(name: RecordName, copies: Collection[tuple[str, str]], own_url: str) -> list[Copy]:
    found = [Copy(name, url, where, url == own_url) for url, where in copies]
    return sorted(found, key=lambda copy: (copy.where != "memory", not copy.own, copy.url))
