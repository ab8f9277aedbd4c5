"""What a rule, or a stage of the controller, raised, as data: the judge does no I/O, so its caller writes the traceback down."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

__all__ = ["RuleFailure"]


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """One exception of one rule (or stage) at one observation. trace: the traceback as Python prints it, several lines.

    Two failures with the same `key` are the same failure met again: the same type of exception raised at the same place. The message is
    no part of it, since it may hold a time or a value of that observation.
    """

    rule: str
    error: str
    trace: str
    key: tuple[str, ...]

    @classmethod
    def of(cls, rule: str, error: Exception) -> RuleFailure:
        frames = traceback.extract_tb(error.__traceback__)
        places = {f"{frame.filename}:{frame.lineno}" for frame in frames}  # a set: an exception that is kept and raised again grows
        text = f"{type(error).__name__}: {error}"
        return cls(rule, text, "".join(traceback.format_exception(error)), (rule, type(error).__name__, *sorted(places)))
