"""A share of a count, how sure it is, and what is not known of it (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Share", "exact_share"]


@dataclass(frozen=True, slots=True)
class Share:
    """`part` of `whole` that are known; `unknown` of which it cannot be said yet."""

    part: int
    whole: int
    unknown: int = 0

    @property
    def value(self) -> float | None:
        """None where nothing is known: no data is no share."""
        return self.part / self.whole if self.whole else None

    @property
    def bounds(self) -> tuple[float, float]:
        """The exact interval (95 %); 0 to 1 where nothing is known."""
        return exact_share(self.part, self.whole)


def exact_share(part: int, whole: int, sure: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson 1934).

    >>> [round(edge, 3) for edge in exact_share(0, 10)], [round(edge, 3) for edge in exact_share(5, 10)], exact_share(0, 0)
    ([0.0, 0.308], [0.187, 0.813], (0.0, 1.0))
    """
    tail = (1.0 - sure) / 2.0
    low = 0.0 if part == 0 else _quantile(tail, part, whole - part + 1)
    high = 1.0 if part == whole else _quantile(1.0 - tail, part + 1, whole - part)
    return low, high


def _quantile(chance: float, a: float, b: float) -> float:
    """Of the beta distribution, by bisection."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _incomplete_beta(middle, a, b) < chance else (low, middle)
    return (low + high) / 2.0


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (Lentz' method), which is quick on this side of the mean."""
    if x <= 0.0 or x >= 1.0:
        return min(1.0, max(0.0, x))
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(1.0 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    value, over, under = 1.0, 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1.0))
    value = under
    for m in range(1, 500):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            under, over = 1.0 / (1.0 + term * under), 1.0 + term / over
            value *= under * over
        if abs(under * over - 1.0) < 1e-14:
            break
    return front * value
