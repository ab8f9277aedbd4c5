"""Any end of any loader process, at any place: the training process sees the planned sequence."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minder.edge.data.patience import Patience
from minder.edge.data.position import Position
from minder.model.errors import DataError

if TYPE_CHECKING:
    from minder.edge.data.channel import Packet
    from minder.edge.data.process import Start

UNITS = 30


@pytest.fixture(scope="module", autouse=True)
def _torch() -> None:
    """Every quick run collects this file, and has no use for the seconds that torch takes to load."""
    global Packet, Fetched, Supply, BATCH, END, READY
    pytest.importorskip("torch")
    pytest.importorskip("torchdata")
    from minder.edge.data.channel import Packet
    from minder.edge.data.process import BATCH, END, READY
    from minder.edge.data.recipe import Fetched
    from minder.edge.data.supply import Supply


class FakeLoader:
    """Sends `alive` packets after its start, then none any more. out_of_order: it leaves one out instead."""

    def __init__(self, alive: int, out_of_order: bool = False) -> None:
        self.alive, self.out_of_order = alive, out_of_order
        self.numbers: Iterator[int] = iter(())
        self.ended = self.dead = self.answered = False

    def start(self, start: Start, ahead: int) -> None:
        self.numbers = itertools.count(start.first)

    def receive(self, timeout_s: float) -> Packet | None:
        assert not self.ended
        if not self.answered:
            self.answered = True
            return Packet(READY, 0, 0.0, None)
        self.alive -= 1
        if self.alive < 0 and not self.out_of_order:
            return None
        number = next(self.numbers) + (self.alive < 0)
        if number >= UNITS:
            return Packet(END, UNITS, 0.0, None)
        return Packet(BATCH, number, 0.1, Fetched(number, 0, f"batch {number}"))

    def grant(self) -> None:
        pass

    def is_alive(self) -> bool:
        return not self.dead

    def end(self) -> str:
        self.ended = True
        return "killed by SIGKILL"


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=12), st.integers(0, 3), st.integers(0, 5))
def test_any_ends_give_the_planned_sequence(lives: list[tuple[int, bool]], shadows: int, first: int) -> None:
    # no five in a row that bring nothing, which is another test
    lives = [(max(alive, 1) if index % 4 == 0 else alive, skips) for index, (alive, skips) in enumerate(lives)]
    made: list[FakeLoader] = []

    def make() -> FakeLoader:
        made.append(FakeLoader(*lives[len(made)]) if len(made) < len(lives) else FakeLoader(UNITS + 1))
        return made[-1]

    supply = Supply(make, shadows, Patience(1.0), ahead=2)
    supply.begin(first, Position())
    taken: list[Any] = []
    for number in itertools.count(first):
        found = supply.take(number)
        if found is None:
            break
        taken.append(found.value)
    assert taken == [f"batch {number}" for number in range(first, UNITS)]
    assert len(supply.processes) == shadows + 1
    supply.end()
    assert all(loader.ended for loader in made)


def test_processes_that_bring_nothing_end_the_training_with_one_line() -> None:
    replaced: list[tuple[int, str]] = []
    supply = Supply(lambda: FakeLoader(0), 1, Patience(1.0), 2, lambda number, end: replaced.append((number, end)))
    supply.begin(7, Position())
    with pytest.raises(DataError, match=r"5 loader processes in a row .* killed by SIGKILL") as caught:
        supply.take(7)
    assert replaced == [(7, "killed by SIGKILL")] * 4 and "\n" not in str(caught.value)
    assert supply.processes == []


def test_a_shadow_that_dies_while_it_waits_is_renewed() -> None:
    made: list[FakeLoader] = []
    replaced: list[tuple[int, str]] = []

    def make() -> FakeLoader:
        made.append(FakeLoader(UNITS))
        return made[-1]

    supply = Supply(make, 2, Patience(1.0), 2, lambda number, end: replaced.append((number, end)))
    supply.begin(0, Position())
    supply.take(0)
    made[2].dead = True
    supply.take(1)
    assert (len(made), replaced, supply.processes) == (4, [(1, "shadow killed by SIGKILL")], [made[0], made[1], made[3]])


def test_patience_is_learned_from_the_loaders_own_past() -> None:
    patience = Patience(least_s=1.0)
    assert patience.limit_s(stage="first") == patience.limit_s() == 10.0
    for seconds in (0.01, 0.02):
        patience.learn(seconds)
    assert (patience.limit_s(), patience.limit_s(failures=3)) == (1.0, 8.0)
    patience.learn(3.0)
    assert patience.limit_s() == 30.0
    patience.learn(6.0, "first")
    assert patience.limit_s(stage="first") == 60.0
    for _ in range(256):
        patience.learn(0.2)
    assert patience.limit_s() == 2.0
