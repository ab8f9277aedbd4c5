"""A run whose ranks have all returned, and whose losses are none, is no success."""

from __future__ import annotations

from typing import Any

import pytest

from minder.act.controller.milestones import note_finished, spoilt_because
from minder.act.controller.state import JobState
from minder.model.evidence import Signal


def _exit(rank: int, generation: int = 2, **data: Any) -> Signal:
    return Signal(1.0, "exit", f"m{rank}", "", rank, None, 100 + rank, generation, {"code": 0, **data})


def _state() -> JobState:
    return JobState("j", generation=2, rank_machine={0: "m0", 1: "m1", 2: "m2"})


def test_ranks_that_end_well_end_the_job_well() -> None:
    state = _state()
    note_finished(state, [_exit(0), _exit(1), _exit(2), _exit(1, generation=1, nonfinite_since=3)])
    assert state.finished == {(2, 0), (2, 1), (2, 2)} and spoilt_because(state) == ""


@pytest.mark.parametrize(
    ("since", "said"),
    [
        ({1: 7}, "the loss of rank 1 on m1 was not finite from step 7 on:"),
        ({0: 8, 1: 7, 2: 8}, "the loss of rank 1 on m1 was not finite from step 7 on, and that of 2 other ranks later:"),
        ({0: 7, 1: 7, 2: 7}, "the loss of ranks 0, 1, 2 was not finite from step 7 on:"),
    ],
)
def test_the_rank_that_was_first_is_named(since: dict[int, int], said: str) -> None:
    state = _state()
    note_finished(state, [_exit(rank, **({"nonfinite_since": since[rank]} if rank in since else {})) for rank in range(3)])
    assert spoilt_because(state).startswith(said)
