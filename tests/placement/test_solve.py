"""The least spread: against every choice there is on small fleets, and what it leaves alone on large ones."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.model.errors import BadInputError
from minder.offline.placement.solve import solve


def every_cut(size: int, room: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Machines in each block of one group."""
    if len(room) == 1:
        yield from [(size,)] if size <= room[0] else []
        return
    for here in range(min(size, room[0]) + 1):
        yield from ((here, *rest) for rest in every_cut(size - here, room[1:]))


def brute_force(groups: int, size: int, free: Sequence[int], alpha: float) -> float:
    """The least objective of all ways to place the groups, one by one."""
    best = float("inf")
    for cuts in itertools.combinations_with_replacement(list(every_cut(size, free)), groups):
        if any(sum(cut[block] for cut in cuts) > room for block, room in enumerate(free)):
            continue
        used = sum(any(cut[block] for cut in cuts) for block in range(len(free)))
        best = min(best, alpha * used + (1 - alpha) * max(sum(map(bool, cut)) for cut in cuts))
    return best


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 4), st.lists(st.integers(0, 6), min_size=1, max_size=4), st.sampled_from([0.0, 0.3, 0.5, 0.8, 1.0])
)
def test_no_choice_is_better(groups: int, size: int, free: list[int], alpha: float) -> None:
    wanted = brute_force(groups, size, free, alpha)
    if wanted == float("inf"):
        with pytest.raises(BadInputError):
            solve(groups, size, free, alpha)
        return
    found = solve(groups, size, free, alpha)
    assert found.objective(alpha) == pytest.approx(wanted) and found.proven
    assert [sum(count for _, count in cut) for cut in found.groups] == [size] * groups
    for block, room in enumerate(free):
        assert sum(count for cut in found.groups for at, count in cut if at == block) <= room


def test_too_few_machines_are_said_in_numbers() -> None:
    with pytest.raises(BadInputError, match="3 groups of 4 machines need 12, and 11 are free"):
        solve(3, 4, [5, 6])


def test_a_fleet_of_1200_machines_keeps_every_pipeline_in_one_block_and_uses_no_more_blocks_than_it_must() -> None:
    free = [61, 59, 64, 48, 33, 64, 57, 62, 64, 40, 64, 51, 64, 60, 63, 64, 38, 64, 55, 62, 63]
    found = solve(128, 8, free, alpha=0.3)
    assert found.proven and found.spread == 1
    rest = sorted((room // 8 for room in free), reverse=True)
    assert found.blocks == next(count for count, total in enumerate(itertools.accumulate(rest), 1) if total >= 128)
