"""A step of a row: a class with a typed state. What it works with stands in its annotations, and is put there once.

class Absence(Stage):
    phases: Phases              # another stage, which comes earlier in the row
    baseline: BaselineState    # another one's state, to be read
    state: AbsenceState         # its own: saved, and followed when machines or metrics come and go

A stage that is left out is there all the same, but is given no row: what it remembers stays empty, and says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, get_type_hints

from minder.diagnose.detectors.config import DefaultConfig
from minder.diagnose.detectors.state import State

if TYPE_CHECKING:
    from minder.diagnose.detectors.row import Layout, Row

__all__ = ["Stage", "compose"]


class Stage:
    """Base of all stages."""

    config: DefaultConfig

    def update(self, row: Row) -> None:
        """One row: read what earlier stages have put there, and add to it."""

    def learn(self, row: Row) -> None:
        """What is usual, from a row that has been scored and judged."""

    def follow(self, layout: Layout) -> None:
        """The machines or the metrics have changed; the state has followed already."""


def compose(kinds: Sequence[type[Stage]], config: DefaultConfig | None = None) -> tuple[tuple[Stage, ...], tuple[State, ...]]:
    """(one stage of each kind, in this order, each given what its annotations ask for; all their states). Stages that they ask for beside
    these are made, too."""
    made: dict[type, Any] = {DefaultConfig: config or DefaultConfig()}

    def ask(kind: type) -> Any:
        if kind not in made:
            made[kind] = kind()
            for name, wanted in _asked(kind):
                setattr(made[kind], name, ask(wanted))
        return made[kind]

    stages = tuple(ask(kind) for kind in kinds)
    return stages, tuple(part for part in made.values() if isinstance(part, State))


@cache
def _asked(kind: type) -> tuple[tuple[str, type], ...]:
    if not issubclass(kind, Stage):
        return ()
    hints = get_type_hints(kind)
    return tuple((name, hint) for name, hint in hints.items() if isinstance(hint, type) and issubclass(hint, (Stage, State, DefaultConfig)))
