"""Every small layout, whole: what a lost machine or a lost parallel group leaves."""

from __future__ import annotations

import itertools

import pytest

from minder.edge.cache.placement import place_backups
from minder.model.topology import Parallelism

ORDERS = ("tp-dp-pp", "tp-pp-dp", "dp-tp-pp")


def layouts(most: int = 24) -> list[tuple[Parallelism, int]]:
    """Parallelism and ranks a machine, of every job of at most `most` ranks."""
    found = []
    for order in ORDERS:
        for tensor, pipeline, data, context in itertools.product((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4, 6), (1, 2)):
            world = tensor * pipeline * data * context
            if 2 <= world <= most:
                parallelism = Parallelism(tensor=tensor, pipeline=pipeline, data=data, context=context, rank_order=order)
                found += [(parallelism, size) for size in range(1, world) if world % size == 0]
    return found


def shared_axes(parallelism: Parallelism, rank: int, peer: int) -> list[str]:
    """Axes whose group holds both."""
    return [axis for axis, size in parallelism.axes() if size > 1 and peer in parallelism.group(axis, rank)]


def test_the_published_example() -> None:
    peers = place_backups(Parallelism(tensor=2, pipeline=4, data=2), {rank: f"m{rank // 2}" for rank in range(16)})
    assert (peers[8], peers[9], peers[2], peers[3]) == (2, 3, 8, 9)
    assert all(peers[peers[rank]] == rank for rank in peers)


@pytest.mark.parametrize("order", ORDERS)
def test_over_all_small_layouts_no_backup_is_closer_than_it_must_be(order: str) -> None:
    for parallelism, size in layouts():
        if parallelism.rank_order != order:
            continue
        ranks = range(parallelism.world_size)
        machine = {rank: f"m{rank // size}" for rank in ranks}
        peers = place_backups(parallelism, machine)
        assert sorted(peers) == list(ranks)
        for rank, peer in peers.items():
            apart = [other for other in ranks if machine[other] != machine[rank]]
            assert peer in apart, (parallelism, size, rank)
            if any(not shared_axes(parallelism, rank, other) for other in apart):
                assert not shared_axes(parallelism, rank, peer), (parallelism, size, rank, peer)


def test_every_peer_holds_about_as_much_as_the_others() -> None:
    for parallelism, size in layouts():
        peers = place_backups(parallelism, {rank: f"m{rank // size}" for rank in range(parallelism.world_size)})
        held = [list(peers.values()).count(rank) for rank in peers]
        assert max(held) <= 2, (parallelism, size, peers)


def test_pure_data_parallel_takes_a_neighbour_in_another_rack_where_racks_are_known() -> None:
    machine = {rank: f"m{rank // 2}" for rank in range(8)}
    assert place_backups(Parallelism(data=8), machine)[0] == 2  # the next machine
    racks = {"m0": {"rack": "r0"}, "m1": {"rack": "r0"}, "m2": {"rack": "r1"}, "m3": {"rack": "r1"}}
    peers = place_backups(Parallelism(data=8), machine, racks)
    assert all(racks[machine[rank]] != racks[machine[peer]] for rank, peer in peers.items())


def test_racks_of_uneven_size_still_part_owner_and_backup_where_one_can() -> None:
    machine = {rank: f"m{rank}" for rank in range(6)}
    racks = {f"m{index}": {"rack": "big" if index < 4 else "small", "switch": f"s{index // 2}"} for index in range(6)}
    peers = place_backups(Parallelism(data=6), machine, racks)
    assert all(racks[machine[rank]]["rack"] != racks[machine[peer]]["rack"] for rank, peer in peers.items())


def test_a_job_on_one_machine_has_no_place_for_a_backup() -> None:
    assert place_backups(Parallelism(data=4), dict.fromkeys(range(4), "m0")) == {}


def test_a_replaced_machine_keeps_the_ranks_places() -> None:
    before = place_backups(Parallelism(tensor=2, data=4), {rank: f"m{rank // 2}" for rank in range(8)})
    after = place_backups(Parallelism(tensor=2, data=4), {rank: "s0" if rank // 2 == 1 else f"m{rank // 2}" for rank in range(8)})
    assert before == after
