"""One stage of the default detector by itself, with the states that it works on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from minder.diagnose.detectors.stage import Stage, compose
from minder.diagnose.detectors.state import Moves

S = TypeVar("S", bound=Stage)


def one_stage(kind: type[S], machines: Sequence[str], metrics: Sequence[str]) -> S:
    """Fresh, for these machines and metrics."""
    (made,), states = compose((kind,))
    for part in states:
        part.follow(Moves.between(((), machines), ((), metrics)))
    assert isinstance(made, kind)
    return made
