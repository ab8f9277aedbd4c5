"""The step that this process last went on from. No torch: the gradient guard asks for it, before the first heartbeat of a generation."""

from __future__ import annotations

__all__ = ["last", "note"]

_step = -1


def note(step: int | None) -> None:
    """A checkpoint was loaded; None: there was none, so the first step is 1."""
    global _step
    _step = 0 if step is None else step


def last() -> int:
    """-1 where none was asked for."""
    return _step
