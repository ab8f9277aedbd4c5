"""Which copy each rank takes, and who reads a shared store (pure)."""

from __future__ import annotations

from minder.edge.cache.choice import Copy, Holding, choose_step, equal_bodies, shared_reads
from minder.edge.cache.record import RecordName


def name(rank: int, step: int = 5) -> RecordName:
    return RecordName(step, 1, rank)


def holding(url: str, memory: tuple[int, ...] = (), disk: tuple[int, ...] = (), world_size: int = 4, key: str = "same") -> Holding:
    records = {(name(rank), "memory"): world_size for rank in memory} | {(name(rank), "disk"): world_size for rank in disk}
    return Holding(url, records, {name(rank): key for rank in (*memory, *disk)})


def test_a_body_is_read_from_all_replicas_and_each_reader_begins_elsewhere() -> None:
    holdings = [holding("a"), holding("b", memory=(1, 0)), holding("c", memory=(2,)), holding("d", memory=(3,), key="another")]
    assert equal_bodies(holdings, Copy(name(0), "b", "memory", False)) == [("b", name(0)), ("c", name(2))]
    bad = {(name(2), "c", "memory")}
    assert equal_bodies(holdings, Copy(name(0), "b", "memory", False), bad) == [("b", name(0))]
    without_keys = [Holding(each.url, each.records) for each in holdings]
    assert equal_bodies(without_keys, Copy(name(0), "b", "memory", False)) == [("b", name(0))]


def test_of_a_shared_store_one_rank_reads_what_its_replicas_need_too() -> None:
    shared = [holding(url, disk=(0, 1, 2, 3)) for url in "abcd"]
    chosen = choose_step(shared, 4)
    assert chosen is not None and shared_reads(shared, chosen) == [(0, 1, 2, 3)]
    local = [holding(url, disk=(rank,)) for rank, url in enumerate("abcd")]
    chosen = choose_step(local, 4)
    assert chosen is not None and shared_reads(local, chosen) == []
    some = [holding("a", memory=(0,), disk=(0, 1, 2, 3)), *shared[1:]]
    chosen = choose_step(some, 4)
    assert chosen is not None and shared_reads(some, chosen) == [(1, 2, 3)]


def test_a_run_goes_on_only_from_what_its_own_batches_made() -> None:
    """Steps 5 and 6 were made with batch 4 (that of step 5); a later generation left it out and made step 5 again."""
    again, ahead = RecordName(5, 2, 0), RecordName(6, 1, 0)
    records = {(RecordName(4, 1, 0), "disk"): 1, (name(0), "memory"): 1, (ahead, "memory"): 1, (again, "memory"): 1}
    found = Holding("a", records, {}, {again: "4"})
    for skipped, wanted in (("", ahead), ("4", again), ("3-4", None), ("4,5", RecordName(4, 1, 0)), ("4,7", again), ("9", ahead)):
        chosen = choose_step([found.made_without(skipped)], 1)
        assert (None if chosen is None else chosen[0][0].name) == wanted, skipped
    assert set(found.made_without("4").records) == {(RecordName(4, 1, 0), "disk"), (again, "memory")}
