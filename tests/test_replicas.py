"""A data-parallel job at another size: whole replicas leave and join, every rank keeps its part of its replica."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.model.errors import BadInputError
from minder.model.replicas import Replicas
from minder.model.topology import Parallelism

ORDERS = st.sampled_from(["tp-dp-pp", "tp-pp-dp", "dp-tp-pp", "pp-tp-dp", "tp-cp-dp-pp"])


@st.composite
def jobs(draw: Any) -> tuple[Parallelism, dict[int, str]]:
    tensor, pipeline, context, expert = (draw(st.sampled_from([1, 1, 2])) for _ in range(4))
    data = expert * draw(st.integers(1, 6))
    parallelism = Parallelism(tensor, pipeline, data, expert, context, draw(ORDERS))
    ranks = parallelism.world_size
    size = draw(st.sampled_from([each for each in (1, 2, 4, 8) if ranks % each == 0]))
    return parallelism, {rank: f"m{rank // size}" for rank in range(ranks)}


def parts(parallelism: Parallelism, placed: dict[int, str]) -> dict[int, set[tuple[str, tuple[Any, ...]]]]:
    """Expert block of replicas to (machine, place inside) of each of its ranks: what a replica is, whatever its number."""
    sized, found = parallelism.sized(len(placed)), dict[int, set[tuple[str, tuple[Any, ...]]]]()
    for rank, machine in placed.items():
        at = sized.coordinates(rank)
        inside = (at["tp"], at["cp"], at["pp"], at["dp"] % parallelism.expert)
        found.setdefault(at["dp"] // parallelism.expert, set()).add((machine, inside))
    return found


@settings(max_examples=60, deadline=None)
@given(jobs(), st.data())
def test_a_job_of_any_layout_leaves_out_whole_replicas_and_never_a_part_of_one(job: tuple[Parallelism, dict[int, str]], data: Any) -> None:
    parallelism, placed = job
    machines = sorted(set(placed.values()))
    try:
        replicas = Replicas.of(parallelism, placed)
    except BadInputError:
        return
    assert replicas.placed(replicas.units) == placed
    leaving = data.draw(st.sets(st.sampled_from(machines), min_size=1))
    standbys = [f"s{index}" for index in range(data.draw(st.integers(0, len(leaving))))]
    joins = [f"j{index}" for index in range(data.draw(st.integers(0, 3)))]
    try:
        refit = replicas.refit(leaving, standbys, joins)
    except BadInputError:
        assert len(leaving) - len(standbys) > len(machines) - replicas.machines
        return
    after = dict(refit.rank_machine)
    assert sorted(after) == list(range(len(after))) and not set(after.values()) & leaving
    sizes = Counter(after.values())
    assert set(sizes.values()) == set(Counter(placed.values()).values())
    left = len(machines) - len(leaving) + len(standbys)
    assert refit.machines - len(refit.joined) == left // replicas.machines * replicas.machines  # as many whole units as machines make
    assert set(refit.idle) == (set(machines) | set(standbys)) - leaving - set(after.values())
    complete = parallelism.tensor * parallelism.context * parallelism.pipeline * parallelism.expert
    assert all(len(ranks) == complete for ranks in parts(parallelism, after).values())


def test_plain_data_parallelism_numbers_the_ranks_anew_and_grows_at_the_end() -> None:
    replicas = Replicas.of(Parallelism(data=6), {rank: "abc"[rank // 2] for rank in range(6)})
    smaller = replicas.refit(["b"])
    assert smaller.rank_machine == {0: "a", 1: "a", 2: "c", 3: "c"} and not smaller.idle
    grown = Replicas.of(Parallelism(data=6), smaller.rank_machine).refit([], joins=["s"])
    assert grown.rank_machine == {0: "a", 1: "a", 2: "c", 3: "c", 4: "s", 5: "s"} and grown.joined == ("s",)


def test_the_other_machines_of_a_pipeline_wait_and_serve_the_next_one() -> None:
    """Four pipelines of two machines: one machine lost leaves its partner idle; two lost in two pipelines leave three pipelines."""
    parallelism = Parallelism(tensor=2, pipeline=2, data=4)
    placed = {rank: f"m{rank // 2}" for rank in range(16)}
    replicas = Replicas.of(parallelism, placed)
    assert replicas.units == (("m0", "m4"), ("m1", "m5"), ("m2", "m6"), ("m3", "m7"))
    one = replicas.refit(["m5"])
    assert one.idle == ("m1",) and one.machines == 6
    two = replicas.refit(["m5", "m0"])
    assert two.machines == 6 and not two.idle and {"m1", "m4"} <= set(two.rank_machine.values())


def test_a_replica_that_crosses_every_machine_cannot_leave() -> None:
    replicas = Replicas.of(Parallelism(pipeline=4), {rank: f"m{rank}" for rank in range(4)})
    with pytest.raises(BadInputError, match="no whole replica"):
        replicas.refit(["m2"])


def test_replicas_that_lie_differently_cannot_be_told_apart() -> None:
    with pytest.raises(BadInputError, match="alike"):
        Replicas.of(Parallelism(data=3), {0: "a", 1: "a", 2: "b"})
