"""Loss and gradient norm against their own recent past: five times the usual value is a spike, and so is NaN or infinity.

The factor is ByteRobust's (arXiv 2509.16293). What "usual" is, the paper leaves open: here the median of the last steps, since
a mean would follow the spike, and a longer past the warm-up, in which a loss falls to a tenth. Standard library only: agents load this.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Literal

__all__ = ["GRADIENT_NORM", "LOSS", "OWN_GRADIENT", "Series", "Spike", "StepSpikes"]

Series = Literal["loss", "gradient norm", "own gradient"]
LOSS: Series = "loss"
GRADIENT_NORM: Series = "gradient norm"
OWN_GRADIENT: Series = "own gradient"  # one rank's, before the all-reduce: minder/edge/worker/spikes.py finds those

_FACTOR = 5.0
_MEMORY = 32  # steps
_LEAST = 10  # steps of this life of the job before anything is unusual
_PRECEDENT = 1.5  # a series that was nearly as high a moment ago is a noisy one
_OVER = 8  # usual values in a row after which a spike is over
_FLOOR = {LOSS: 0.01, GRADIENT_NORM: 1e-3}  # below it a value counts as this: 0.0001 that becomes 0.001 harms no training


@dataclass(frozen=True, slots=True)
class Spike:
    """One value of one step far above the usual one, in the series' own unit. value: NaN or infinite if the job said so."""

    what: Series
    step: int
    value: float
    usual: float


class _Watch:
    """One series. A spike is reported once, at its first value; while it lasts nothing is learned from it, for at most _MEMORY steps:
    then it is the new level. A series with a value below zero is a reward or a likelihood, whose ratio means nothing."""

    def __init__(self, what: Series) -> None:
        self._what: Series = what
        self._recent: deque[float] = deque(maxlen=_MEMORY)
        self._calm = _OVER  # usual values since the last spike
        self._high = 0  # values of the spike that lasts

    def see(self, step: int, value: float) -> Spike | None:
        usual = median(self._recent) if self._recent else math.nan
        if math.isfinite(value) and not self._is_high(value, usual):
            self._recent.append(value)
            self._calm, self._high = self._calm + 1, 0
            return None
        begins = self._calm >= _OVER
        self._calm, self._high = 0, self._high + 1
        if self._high >= _MEMORY:
            self._recent.clear()
            self._high = 0
        return Spike(self._what, step, value, usual) if begins else None

    def _is_high(self, value: float, usual: float) -> bool:
        if len(self._recent) < _LEAST or min(self._recent) < 0.0:
            return False
        return value >= _FACTOR * max(usual, _FLOOR[self._what]) and value >= _PRECEDENT * max(self._recent)


class StepSpikes:
    """Steps of one job in the order in which one source gives them.

    >>> steps = StepSpikes()
    >>> [spike for step in range(40) for spike in steps.read(step, 2.0 if step < 39 else 11.0)]
    [Spike(what='loss', step=39, value=11.0, usual=2.0)]
    """

    def __init__(self) -> None:
        self._step = -1
        self.forget()

    def forget(self) -> None:
        """The job began anew: what was usual is to be seen again."""
        self._step = -1
        self._watches = (_Watch(LOSS), _Watch(GRADIENT_NORM))

    def read(self, step: int, loss: float | None = None, grad_norm: float | None = None) -> Iterator[Spike]:
        """Spikes of this step. None: not known. A step below the newest is a job that began again, from a checkpoint."""
        if step < self._step:
            self.forget()
        self._step = step
        found = [watch.see(step, value) for watch, value in zip(self._watches, (loss, grad_norm), strict=True) if value is not None]
        return (spike for spike in found if spike is not None)
