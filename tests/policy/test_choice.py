"""Which standby takes which place: racks, switches and the spread of the job's groups under one rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minder.act.policy.case import Case
from minder.act.policy.choice import choose
from minder.act.policy.context import PolicyContext
from minder.model.spread import Spread, block_kind
from minder.model.topology import Parallelism

PIPES = Parallelism(pipeline=2, data=4)


@pytest.fixture
def cabled(case: Callable[..., Case], context: PolicyContext, accuse: Any) -> Callable[..., Case]:
    """cabled({"s0": {...}}, cause="explicit", ...): four pipelines of two machines, two of them in each block, two machines a switch."""

    def make(standbys: dict[str, dict[str, str]], machines: tuple[str, ...] = ("m1",), cause: str = "explicit", **changes: Any) -> Case:
        inside = {f"m{rank}": {"block": f"b{rank % 4 // 2}", "switch": f"s{rank // 2}"} for rank in range(8)}
        job = replace(context.job, rank_machine={rank: f"m{rank}" for rank in range(8)})
        around = {"job": job, "domains": {**inside, **standbys}, "parallelism": PIPES, "standbys_ready": tuple(standbys)}
        return case(accuse(*machines, cause=cause), **{**around, **changes})

    return make


def test_a_machines_own_fault_keeps_the_block(cabled: Callable[..., Case]) -> None:
    standbys = {"s0": {"block": "b1", "switch": "x"}, "s1": {"block": "b0", "switch": "s0"}}
    assert choose(cabled(standbys), list(standbys), 1) == ("s1",)


def test_a_fault_that_may_be_the_switchs_goes_behind_another_one_first(cabled: Callable[..., Case]) -> None:
    standbys = {"s0": {"block": "b0", "switch": "s0"}, "s1": {"block": "b1", "switch": "x"}, "s2": {"block": "b0", "switch": "y"}}
    assert choose(cabled(standbys, cause="absence"), list(standbys), 1) == ("s2",)
    assert choose(cabled({name: standbys[name] for name in ("s0", "s1")}, cause="absence"), ["s0", "s1"], 1) == ("s1",)


def test_each_place_gets_the_standby_of_its_own_block(cabled: Callable[..., Case]) -> None:
    standbys = {"s0": {"block": "b1", "switch": "x"}, "s1": {"block": "b0", "switch": "y"}}
    assert choose(cabled(standbys, ("m1", "m2")), list(standbys), 2) == ("s1", "s0")


def test_where_nothing_names_a_block_the_order_of_the_configuration_stands(cabled: Callable[..., Case]) -> None:
    assert choose(cabled({"s0": {}, "s1": {}}, domains={}), ["s0", "s1"], 1) == ("s0",)


def test_what_was_chosen_before_stays(cabled: Callable[..., Case]) -> None:
    standbys = {"s0": {"block": "b0"}, "s1": {"block": "b1"}}
    assert choose(cabled(standbys, preferred=("s1",)), list(standbys), 1) == ("s1",)


def test_one_that_is_proven_goes_before_one_that_is_not_wherever_they_stand(cabled: Callable[..., Case]) -> None:
    standbys = {"s0": {"block": "b0", "switch": "x"}, "s1": {"block": "b1", "switch": "s0"}, "s2": {"block": "b0", "switch": "y"}}
    turns = {"s0": 1, "s1": 0, "s2": 2}  # s0 was never tested and s2 is slow; s1 is proven, and behind the machine's own switch
    found = cabled(standbys, ("m1", "m2", "m3"), cause="absence", standby_turns=turns)
    assert choose(found, list(standbys), 1) == ("s1",)
    assert choose(found, ["s0", "s2"], 1) == ("s0",)
    assert choose(found, list(standbys), 3) == ("s1", "s0", "s2")
    assert choose(cabled(standbys, preferred=("s2",), standby_turns=turns), list(standbys), 1) == ("s2",)


@given(st.data())
def test_the_chosen_standby_adds_least_to_the_spread(data: Any) -> None:
    """Against every standby there is, by the definition: the largest spread of each axis after the swap."""
    blocks = {f"m{rank}": data.draw(st.sampled_from("abc")) for rank in range(8)} | {
        f"s{at}": data.draw(st.sampled_from("abcd")) for at in range(4)
    }
    placed = {rank: f"m{rank}" for rank in range(8)}
    spread = Spread.of(PIPES, placed, blocks)

    def after(standby: str) -> int:
        moved = {rank: standby if name == "m3" else name for rank, name in placed.items()}
        grown = Spread.of(PIPES, moved, blocks).largest()
        return sum(max(0, grown[axis] - size) for axis, size in spread.largest().items())

    for at in range(4):
        assert spread.grows_by("m3", f"s{at}")[0] == after(f"s{at}")


def test_switches_are_the_blocks_where_no_block_is_named() -> None:
    assert block_kind({"a": {"switch": "s1", "rack": "r"}}, ("a",)) == "switch"
    assert block_kind({"a": {"rack": "r"}}, ("a",)) is None
