import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minder.edge.data.order import Order, fingerprint
from minder.edge.data.plan import Plan, Share
from minder.edge.data.position import Position
from minder.model.batch_ranges import format_ranges, parse_ranges
from minder.model.errors import DataError

PLAN = Plan(samples=103, global_batch=12, seed=7)


@given(st.integers(1, 300), st.integers(0, 2**40), st.integers(0, 5))
def test_an_epoch_has_every_sample_once(size: int, seed: int, epoch: int) -> None:
    order = Order(size, seed, epoch)
    assert sorted(order.at(place) for place in range(size)) == list(range(size))


def test_seeds_and_epochs_have_orders_of_their_own() -> None:
    orders = {tuple(Order(50, seed, epoch).at(place) for place in range(50)) for seed, epoch in itertools.product(range(10), range(10))}
    assert len(orders) == 100
    first = Counter(Order(8, seed, 0).at(0) for seed in range(4000))
    assert all(380 < count < 620 for count in first.values()) and len(first) == 8


def test_an_order_is_the_same_in_every_version() -> None:
    """A run that goes on under another release must not begin another order: these numbers never change."""
    assert Plan(samples=1000, global_batch=6, seed=5).samples_of(0) == [331, 535, 778, 261, 249, 246]
    assert Plan(samples=1000, global_batch=10, seed=5).samples_of(100)[:4] == [846, 766, 516, 607]
    assert fingerprint([3, 1, 2]) == fingerprint([1, 2, 3]) == (fingerprint([1]) + fingerprint([2, 3])) % 2**64


@given(st.integers(1, 12), st.integers(0, 40))
def test_any_number_of_ranks_consumes_the_same_batches(world: int, batch: int) -> None:
    shares = [PLAN.samples_of(batch, Share(rank, world)) for rank in range(world)]
    assert [sample for share in shares for sample in share] == PLAN.samples_of(batch)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_share_comes_in_parts_and_an_epoch_leaves_out_what_fills_no_batch() -> None:
    share = Share(rank=1, world=2, parts=3)
    assert [PLAN.samples_of(4, share, part) for part in range(3)] == [PLAN.samples_of(4, share)[at : at + 2] for at in (0, 2, 4)]
    epoch = [sample for batch in range(PLAN.batches_per_epoch) for sample in PLAN.samples_of(batch)]
    assert len(set(epoch)) == len(epoch) == 96
    with pytest.raises(IndexError):
        Plan(samples=10, global_batch=5, epochs=2).samples_of(4)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Plan(samples=10, global_batch=11), "10 samples make no global batch of 11"),
        (lambda: Plan(samples=10, global_batch=0), "count from 1"),
        (lambda: PLAN.check_share(Share(0, 8, 2)), "8 ranks in 2 parts need 16"),
        (lambda: Share(2, 2), "rank 2 of 2"),
        (lambda: PLAN.check_identity({**PLAN.identity(), "seed": 8}, "the state"), "another data plan .seed 8; here seed 7."),
        (lambda: Position.of_state({"step": 3}, PLAN), "no step, skipped batches and plan"),
        (lambda: Position.of_state({**Position(3).state(PLAN), "skipped": "x"}, PLAN), "no step, skipped batches and plan"),
    ],
)
def test_what_is_no_plan_or_no_place_in_it_is_refused_with_one_line(make: object, said: str) -> None:
    with pytest.raises(DataError, match=said) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_a_run_may_go_on_for_more_epochs() -> None:
    state = Position(8).state(Plan(samples=10, global_batch=5, epochs=4))
    assert Position.of_state(state, Plan(samples=10, global_batch=5, epochs=9)).step == 8


@given(st.integers(0, 30), st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
def test_batches_to_skip_may_change_where_a_run_resumes(step: int, before: set[int], after: set[int]) -> None:
    """What was trained on stays so; from there on each batch comes once, but for those that are skipped now."""
    old = Position(step, parse_ranges(format_ranges(range(batch, batch + 1) for batch in before)))
    new = old.skipping([range(batch, batch + 1) for batch in after])
    trained = [unit.batch for unit in itertools.islice(old.units(PLAN, 1, 0), step)]
    assert [unit.batch for unit in itertools.islice(new.units(PLAN, 1, 0), step)] == trained
    reached = trained[-1] + 1 if trained else 0
    expected = [batch for batch in range(reached, 100) if batch not in after][:40]
    assert [unit.batch for unit in itertools.islice(new.units(PLAN, 1, step), 40)] == expected


def test_units_end_with_the_plan() -> None:
    plan = Plan(samples=9, global_batch=3, epochs=2)
    units = list(Position(skipped=(range(1, 2),)).units(plan, 2, 4))
    assert [(unit.number, unit.step, unit.batch, unit.part) for unit in units] == [
        (4, 3, 3, 0), (5, 3, 3, 1), (6, 4, 4, 0), (7, 4, 4, 1), (8, 5, 5, 0), (9, 5, 5, 1),
    ]  # fmt: skip
