"""Which copy each rank takes, and who reads a shared store (pure)."""

from __future__ import annotations

import pytest

from minder.edge.cache.choice import Copy, Holding, choose_step, equal_bodies, obsolete, shared_reads
from minder.edge.cache.peers import Peer, Peers
from minder.edge.cache.record import Record, RecordName


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


def _held(url: str, *names: RecordName) -> Holding:
    return Holding(url, {(each, "memory"): 2 for each in names})


@pytest.mark.parametrize(
    ("of_first", "of_second", "chosen"),
    [
        ([(9, 1), (8, 2)], [(8, 2)], (8, 2)),
        ([(8, 1), (8, 2)], [(8, 2), (8, 1)], (8, 2)),
        ([(8, 3)], [(8, 2)], None),
        ([(7, 1), (8, 2)], [(7, 1), (8, 3)], (7, 1)),
    ],
    ids=["an earlier start's step that a rank lacks", "both starts have it", "a rank of either start", "older, and of one start"],
)
def test_all_ranks_go_on_from_a_step_of_one_start(
    of_first: list[tuple[int, int]], of_second: list[tuple[int, int]], chosen: tuple[int, int] | None
) -> None:
    first, second = (
        _held(url, *(RecordName(step, generation, rank) for step, generation in held))
        for rank, (url, held) in enumerate([("a", of_first), ("b", of_second)])
    )
    found = choose_step([first, second], 2)
    assert (found and {(copy.name.step, copy.name.generation) for copies in found.values() for copy in copies}) == (chosen and {chosen})


def test_a_body_that_lies_on_disks_only_is_read_from_several_of_them() -> None:
    holdings = [holding("a"), holding("b", disk=(1, 0)), holding("c", disk=(2,)), holding("d", memory=(3,))]
    assert equal_bodies(holdings, Copy(name(0), "b", "disk", False)) == [("b", name(0)), ("c", name(2)), ("d", name(3))]
    bad = {(name(2), "c", "disk")}
    assert equal_bodies(holdings, Copy(name(0), "b", "disk", False), bad) == [("b", name(0)), ("d", name(3))]
    assert equal_bodies(holdings, Copy(name(3), "d", "memory", False)) == [("d", name(3))], "no disk holds up what memory has"


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


def _record(step: int, generation: int = 1, update: int = 0, skipped: str = "") -> Record:
    return Record(RecordName(step, generation, 0), 4, 0, "", (), b"", update, skipped)


@pytest.mark.parametrize(
    ("records", "newest", "every", "gone"),
    [
        ([_record(step) for step in (10, 20, 30, 40)], _record(40), 0, [10]),
        ([_record(step) for step in (10, 20, 30, 40, 50)], _record(50), 20, [10]),  # every 20th stays, however old
        ([*(_record(step) for step in (10, 20, 30)), _record(20, 2, 0, "14")], _record(20, 2, 0, "14"), 0, [20, 30]),  # 10 is all it has
        ([*(_record(step, 1, 1) for step in (10, 20)), *(_record(step, 2, 2) for step in (30, 40, 50))], _record(50, 2, 2), 0, [10]),
        ([_record(60, 3), *(_record(step, 1) for step in (80, 90))], _record(60, 3), 0, []),  # a rollback: three are not too many
    ],
)
def test_what_a_run_may_have_to_go_back_to_stays_on_the_disk(records: list[Record], newest: Record, every: int, gone: list[int]) -> None:
    assert [name.step for name in obsolete(records, newest, 3, every)] == gone


def test_caches_of_machines_that_left_are_known_until_a_step_is_committed_without_them() -> None:
    peers = Peers()
    peers.meet({"m0": "a", "m1": "b", "m2": "c"}, 1, "first")
    peers.meet({"m0": "a", "s0": "d", "m2": "c"}, 2, "second")
    peers.meet({"m0": "a", "s0": "d", "s1": "e"}, 3, "third")
    assert peers.left(3) == [Peer("m2", "c", 2, "second"), Peer("m1", "b", 1, "first")]
    peers.forget_before(1)  # a step that an earlier generation saved was loaded
    assert len(peers.left(3)) == 2
    peers.meet({"m1": "f"}, 3, "third")
    assert [peer.machine for peer in peers.left(3)] == ["m2"]
    peers.forget_before(3)
    assert peers.left(3) == []
