"""What an actuator is: it executes a decision, once, and can say how to undo it. It never decides."""

from __future__ import annotations

from typing import Protocol

from minder.types import ActionResult, Decision

__all__ = ["Actuator"]


class Actuator(Protocol):
    """`execute` is idempotent by operation id. An outcome that is not known is "ambiguous", never "done"."""

    name: str

    def execute(self, decision: Decision) -> ActionResult: ...
