"""What was done to whom: the truth that the judge holds the job's history against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Wound"]


def _nothing() -> None:
    return


@dataclass(slots=True)
class Wound:
    """machines: that were hit; faulty: they may be evicted for it, from `begin_s` until `end_s` (None: still). step: the job's last one.
    undo: heals what can be healed; called once, at `heal_at_s` (unix seconds) or when the machine is repaired."""

    number: int
    kind: str
    machines: tuple[str, ...] = ()
    faulty: bool = False
    stops: bool = False
    begin_s: float = 0.0
    end_s: float | None = None
    step: int = 0
    detail: str = ""
    heal_at_s: float | None = None
    undo: Callable[[], None] = field(default=_nothing, repr=False)

    def to_json(self) -> dict[str, Any]:
        names = ("number", "kind", "machines", "faulty", "stops", "begin_s", "end_s", "step", "detail")
        return {name: getattr(self, name) for name in names}
