"""Which machine runs each rank, in little memory: the same as the dict."""

from __future__ import annotations

import pickle
import sys

import pytest

from minder.model.rank_machines import RankMachines


def test_it_reads_as_the_dict_does() -> None:
    placed = {1: "b", 0: "a", 2: "b"}
    ranks = RankMachines.of(placed)
    assert isinstance(ranks, RankMachines) and ranks == placed and placed == ranks
    assert dict(ranks) == placed and list(ranks) == [0, 1, 2] and len(ranks) == 3 and 2 in ranks and 3 not in ranks
    assert ranks.get(-1) is None and pickle.loads(pickle.dumps(ranks)) == ranks
    with pytest.raises(KeyError):
        ranks[3]


@pytest.mark.parametrize("placed", [{}, {0: "a"}, {7: "a"}, {-1: "a", 0: "b"}])
def test_ranks_with_gaps_stay_as_they_are(placed: dict[int, str]) -> None:
    assert RankMachines.of(placed) == placed


def test_a_rank_costs_a_few_bytes() -> None:
    names = [sys.intern(f"m{rank // 8}") for rank in range(8000)]
    assert sys.getsizeof(RankMachines(names)._names) < 9 * 8000
