"""Which ranks let another's body stand for their own, and when that does not hold (pure)."""

from __future__ import annotations

import pytest

from minder.edge.cache.choice import Copy, Holding, copies_of_body
from minder.edge.cache.record import RecordName

pytestmark = pytest.mark.package("torch")


@pytest.mark.parametrize(
    ("samples", "domains", "keepers"),
    [
        ([5, 5, 5, 5], ["a", "a", "b", "b"], {1: 0, 3: 2}),
        ([5, 6, 5, 6], ["a", "a", "a", "a"], {2: 0, 3: 1}),  # two shards, twice
        ([0, 0], ["a", "a"], {}),  # too small
        ([5, 6, 7], ["a", "a", "a"], {}),
    ],
)
def test_one_of_a_domain_keeps_what_several_have(samples: list[int], domains: list[str], keepers: dict[int, int]) -> None:
    pytest.importorskip("torch")
    from minder.edge.checkpoint import twins

    assert twins.group(samples, domains) == keepers


@pytest.mark.parametrize(
    ("keepers", "digests", "alike"),
    [
        ([-1, 0, -1, 2], [9, 9, 9, 9], True),
        ([-1, 0, -1, -1], [9, 8, 7, 6], False),
        ([-1, 0, -1], [9, 9, 3], True),  # who stands for itself may differ
        ([1, 0], [9, 9], False),  # neither has a body
        ([-1, 0], [0, 9], False),  # its keeper has left this step out, or does not sum up
    ],
)
def test_a_step_counts_where_keepers_have_what_stands_for_others(keepers: list[int], digests: list[int], alike: bool) -> None:
    pytest.importorskip("torch")
    from minder.edge.checkpoint import twins

    assert twins.are_alike(keepers, digests) is alike


def test_a_sum_is_of_all_bytes_and_a_sample_of_the_first() -> None:
    torch = pytest.importorskip("torch")
    from minder.edge.checkpoint import twins
    from minder.edge.checkpoint.shards import take_apart

    state = {
        "w": torch.zeros(600, 1000, dtype=torch.bfloat16),
        "odd": torch.arange(2e6)[::2],
        "none": torch.empty(0),
        "one": torch.tensor(1.0),
    }
    before, total = twins.sample(take_apart(state)), twins.crc(state["w"])
    state["w"][599, 999] = 1.0
    assert before == twins.sample(take_apart(state)) and before != 0
    assert total != twins.crc(state["w"])
    state["odd"][0] = -1.0
    assert before != twins.sample(take_apart(state))
    assert twins.sample(take_apart({"small": torch.zeros(10)})) == 0


def test_a_body_is_taken_from_its_keeper_or_from_another_domains() -> None:
    own, other = RecordName(5, 1, 0), RecordName(5, 1, 2)
    older = RecordName(4, 1, 0)
    holdings = [
        Holding("a", {(RecordName(5, 1, 1), "memory"): 4}),
        Holding("b", {(own, "disk"): 4, (older, "memory"): 4}, digests={own: "same", older: "same"}),
        Holding("c", {(other, "memory"): 4}, digests={other: "same"}),
        Holding("d", {(own, "memory"): 4}, digests={own: "same"}),
    ]
    assert copies_of_body(holdings, 5, 1, "same", "d") == [
        Copy(own, "d", "memory", True), Copy(other, "c", "memory", False), Copy(own, "b", "disk", False),
    ]  # fmt: skip
    assert copies_of_body(holdings, 5, 1, "another", "d") == []
    assert [copy.url for copy in copies_of_body(holdings, 5, 1, "same", "a", {(other, "c", "memory")})] == ["d", "b"]
