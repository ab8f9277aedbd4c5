"""How long a question to an operator still waits, by a clock that nobody can set.

The ledger says until when, by the wall clock, and the wall clock may be set: then no time has passed, and nobody may lose or win any.
A controller that was started again knows only the wall clock's word for what has passed meanwhile. It takes it within bounds: never
more than the whole time that the site gives, and what the site wants done without anybody's yes is done after a look of its own.
"""

from __future__ import annotations

from minder.model.clock import Clock
from minder.model.history import Approval

__all__ = ["LOOK_FOR_S", "Patience"]

LOOK_FOR_S = 120.0  # so long may a controller that was started again take to see for itself what was approved
_NOTICED_S = 2.0  # as minder.act.controller.clock_steps


class Patience:
    """The waiting questions of one job, as one process sees them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_s = clock.steady_s()
        self._ends_s: dict[str, float] = {}  # by the steady clock, of each operation

    @property
    def looked_s(self) -> float:
        """Since this controller was started."""
        return self._clock.steady_s() - self._begun_s

    def begin(self, operation_id: str, length_s: float) -> None:
        """This process has just asked."""
        self._ends_s[operation_id] = self._clock.steady_s() + length_s

    def is_over(self, item: Approval) -> bool:
        """Whether the time to answer this waiting question has passed."""
        return self._clock.steady_s() >= self._end_s(item)

    def moved(self, item: Approval) -> float | None:
        """Until when it waits by the wall clock, where that is not what the ledger says; None where it is."""
        until_s = self._clock.now_s() + self._end_s(item) - self._clock.steady_s()
        return until_s if abs(until_s - item.until_s) > _NOTICED_S else None

    def _end_s(self, item: Approval) -> float:
        name = item.decision.operation_id
        if name not in self._ends_s:  # another process asked
            whole_s = max(0.0, item.until_s - item.asked_s)
            left_s = min(max(0.0, item.until_s - self._clock.now_s()), whole_s)
            if item.on_timeout == "approve":
                left_s = max(left_s, min(whole_s, LOOK_FOR_S))
            self._ends_s[name] = self._clock.steady_s() + left_s
        return self._ends_s[name]
