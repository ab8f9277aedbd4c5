"""Which step a job goes on from: the newest of which a record of every rank is left somewhere, wherever its parts lie (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from minder.edge.cache.record import Record, RecordName
from minder.model.batch_ranges import consumed_alike, parse_ranges

__all__ = ["Copy", "Holding", "Reader", "choose_step", "copies_of_body", "equal_bodies", "obsolete", "shared_reads"]


@dataclass(frozen=True, slots=True)
class Reader:
    """Which steps a run may go on from. not_of: updates of the job's code whose steps it does not read; skipped: batches that it leaves
    out, and may not have learned from.

    >>> run = Reader(not_of=frozenset({3}), skipped="14")
    >>> run.reads(14, update=2), run.reads(15, update=2), run.reads(15, update=2, skipped="14"), run.reads(14, update=3)
    (True, False, True, False)
    """

    not_of: frozenset[int] = frozenset()
    skipped: str = ""

    def reads(self, step: int, update: int = 0, skipped: str = "") -> bool:
        """Whether that is a state of this run: update and skipped are those of the run that saved it."""
        return update not in self.not_of and consumed_alike(step, parse_ranges(skipped), parse_ranges(self.skipped))


@dataclass(frozen=True, slots=True)
class Holding:
    """What one cache has: its address, and for each record its world size and where it lies, "memory" or "disk". keys: equal for equal
    bodies, of the records that have one. digests: of the records whose body stands for those of other ranks too."""

    url: str
    records: Mapping[tuple[RecordName, str], int]
    keys: Mapping[RecordName, str] = field(default_factory=dict)
    digests: Mapping[RecordName, str] = field(default_factory=dict)


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


def copies_of_body(
    holdings: Sequence[Holding], step: int, generation: int, digest: str, own_url: str, bad: Collection[tuple[RecordName, str, str]] = ()
) -> list[Copy]:
    """Where the body lies of a rank that keeps none, the nearest first: at its keeper, its keeper's backup, or the keepers of other failure
    domains, whose bodies are equal."""
    alike = {
        name
        for holding in holdings
        for name, found in holding.digests.items()
        if (name.step, name.generation, found) == (step, generation, digest)
    }
    places: dict[RecordName, set[tuple[str, str]]] = defaultdict(set)
    for holding in holdings:
        for name, where in holding.records:
            if name in alike and (name, holding.url, where) not in bad:
                places[name].add((holding.url, where))
    found = [copy for name, there in sorted(places.items()) for copy in _nearest(name, there, own_url)]
    return sorted(found, key=_nearness)


def equal_bodies(
    holdings: Sequence[Holding], copy: Copy, bad: Collection[tuple[RecordName, str, str]] = ()
) -> list[tuple[str, RecordName]]:
    """Where the body of a copy lies in memory, or on disks where the copy does, first its own place: addresses of caches, one record in
    each. Replicas of a data-parallel group have equal ones, so that a new machine reads from all of them at once. Begins with the ranks
    after the copy's own: each reads from others.
    """
    key, places = _keys(holdings).get(copy.name), {"memory", copy.where}
    found = {copy.url: copy.name}
    turn = copy.name.rank + 1
    for holding in [*holdings[turn:], *holdings[:turn]]:
        for name, of_name in holding.keys.items():
            is_there = any((name, where) in holding.records and (name, holding.url, where) not in bad for where in places)
            if key is not None and of_name == key and is_there:
                found.setdefault(holding.url, name)
    return list(found.items())


def shared_reads(holdings: Sequence[Holding], chosen: Mapping[int, Sequence[Copy]]) -> list[tuple[int, ...]]:
    """Ranks whose equal bodies lie in a store that several machines share, and nowhere else: the first of each group is to read it there,
    the others from its memory. A store that all read at once is the slowest part of a large job."""
    keys = _keys(holdings)
    groups: dict[str, list[int]] = defaultdict(list)
    for rank, copies in sorted(chosen.items()):
        is_shared = copies[0].where == "disk" and len({copy.url for copy in copies}) > 1
        if is_shared and copies[0].name in keys:
            groups[keys[copies[0].name]].append(rank)
    return [tuple(ranks) for ranks in groups.values() if len(ranks) > 1]


def obsolete(records: Sequence[Record], newest: Record, keep: int, every: int) -> list[RecordName]:
    """Which of one rank's records on a disk go once `newest` lies there. The newest `keep` stay of those that its run could go on from, the
    newest one of another update of the job's code (a rollback may have nothing else), and each whose step `every` divides; 0: none."""
    by_age = sorted(records, key=lambda record: (record.name.generation, record.name.step), reverse=True)
    run = Reader(skipped=newest.skipped)
    stays = {each.name for each in [each for each in by_age if run.reads(each.name.step, skipped=each.skipped)][:keep]}
    stays |= {each.name for each in [each for each in by_age if each.update != newest.update][:1]}
    own_age = newest.name.generation, newest.name.step
    return [
        name
        for name in (each.name for each in records)
        if name not in stays and (name.generation, name.step) < own_age and not (every and name.step % every == 0)
    ]


def _keys(holdings: Sequence[Holding]) -> dict[RecordName, str]:
    return {name: key for holding in holdings for name, key in holding.keys.items()}


def _nearest(name: RecordName, copies: Collection[tuple[str, str]], own_url: str) -> list[Copy]:
    found = [Copy(name, url, where, url == own_url) for url, where in copies]
    return sorted(found, key=_nearness)


def _nearness(copy: Copy) -> tuple[bool, bool, str]:
    return copy.where != "memory", not copy.own, copy.url
