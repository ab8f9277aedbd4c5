"""Most of a job goes dark at once, as when a site loses its power, and comes back machine by machine."""

from __future__ import annotations

import math

__all__ = ["Outage"]

_LEAST_S = 2.0  # most of the job unheard for so long is an outage; less, a controller that was held up
_RETURN_S = 60.0  # machines that went dark together come back one after the other


class Outage:
    """Feed it every observation's machines that have not been heard lately."""

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._return_until_s = -math.inf
        self._dark: frozenset[str] = frozenset()

    @property
    def returning(self) -> frozenset[str]:
        """Machines that went dark with most of the job, a moment ago, and have not been heard again since."""
        return self._dark

    def update(self, unheard: frozenset[str], machines: int, now_s: float) -> bool:
        """True while more than half of the job's machines are unheard."""
        if len(unheard) * 2 <= machines:
            self._since_s = None
            self._dark = self._dark & unheard if now_s < self._return_until_s else frozenset()
            return False
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._since_s >= _LEAST_S:
            self._dark, self._return_until_s = unheard, now_s + _RETURN_S
        return True
