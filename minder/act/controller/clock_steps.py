"""The wall clock was set: by hand, by NTP after a boot, by a virtual machine that slept. No time passed, and nobody fell silent.

Ages and durations are differences of times, so none may span a step. What the job is stays known; what the rules and the detector
remember is learned anew, as by a controller that was started again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from minder.model.clock import Clock
from minder.model.evidence import Signal

__all__ = ["ClockSteps"]

_NOTICED_S = 2.0  # less is within what telemetry's jitter and a slow tick do anyway
_SETTLE_S = 5.0  # by then every machine has answered again, and its clock is compared with the new one


class ClockSteps:
    """Call `look` once per tick. `settling`: so soon after a step that nothing may be concluded."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference_s = clock.now_s() - clock.steady_s()
        self._noticed_s = -math.inf

    def look(self) -> float:
        """Seconds that the wall clock was set forward (negative: back) since the last call; 0.0 if it was not."""
        now_s = self._clock.now_s() - self._clock.steady_s()
        moved_s, self._difference_s = now_s - self._difference_s, now_s
        if abs(moved_s) <= _NOTICED_S:
            return 0.0
        self._noticed_s = self._clock.steady_s()
        return moved_s

    @property
    def settling(self) -> bool:
        return self._clock.steady_s() - self._noticed_s < _SETTLE_S

    def move(self, signals: Iterable[Signal], by_s: float) -> list[Signal]:
        """Signals that were dated just before the step, dated by the new clock; those that were dated after it stay."""
        now_s = self._clock.now_s()
        near = abs(by_s) / 2
        return [replace(item, time_s=item.time_s + by_s) if abs(item.time_s - now_s) > near else item for item in signals]
