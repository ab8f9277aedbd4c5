"""This rank's own gradient against its own past, before the all-reduce mixes it with everybody's: g squared over 5,000 v.

v is an exponential mean of g squared, as Adam keeps one, before this step enters it. SPAM (arXiv 2501.06842) asks that of every
element, which takes a second copy of the gradient and several passes; here g squared is the sum over a bucket, which the look for NaN
computes anyway. No torch in here.
"""

from __future__ import annotations

import math

__all__ = ["GradientSpikes"]

_THETA = 5_000.0  # SPAM's code; thresholds below 100 harm there
_BETA = 0.999  # Adam's second
_LEAST = 20  # steps before v means something: SPAM's guard


class _Mean:
    """v, corrected for its beginning as Adam does."""

    __slots__ = ("count", "weighted")

    def __init__(self) -> None:
        self.count, self.weighted = 0, 0.0

    @property
    def value(self) -> float:
        return self.weighted / (1.0 - _BETA**self.count)


class GradientSpikes:
    """Remembers v of each part of the model. A part is whatever is looked at together and keeps its size, such as a bucket of DDP."""

    def __init__(self) -> None:
        self._means: dict[tuple[int, int], _Mean] = {}
        self._reported_step = -1

    def look(self, part: tuple[int, int], squared: float, step: int) -> float | None:
        """v if `squared`, the sum of squares of this part's gradient at `step`, is a spike that was not reported for this step yet.

        part: (index, elements). Not finite is not for here. A part that got no gradient at all (an expert that no token went to)
        has learned nothing and is no spike when it gets one. A spike enters v no higher than the threshold, as SPAM clips it.
        """
        if squared <= 0.0 or not math.isfinite(squared):
            return None
        mean = self._means.setdefault(part, _Mean())
        usual = mean.value if mean.count else squared
        is_spike = mean.count >= _LEAST and squared > _THETA * usual
        mean.count += 1
        mean.weighted = _BETA * mean.weighted + (1.0 - _BETA) * min(squared, _THETA * usual)
        if not is_spike or step == self._reported_step:
            return None
        self._reported_step = step
        return usual
