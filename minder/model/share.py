"""A share of a count, how sure it is, and what is not known of it (pure)."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Share", "beta_quantile", "exact_share"]

_TERMS, _TINY = 300, 1e-300


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
    low = 0.0 if part == 0 else beta_quantile(part, whole - part + 1, tail)
    high = 1.0 if part == whole else beta_quantile(part + 1, whole - part, 1.0 - tail)
    return low, high


def beta_quantile(a: float, b: float, share: float) -> float:
    """x with P(X <= x) = share for X ~ Beta(a, b), by bisection; a, b above 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _cumulative(a, b, middle) < share else (low, middle)
    return (low + high) / 2


def _cumulative(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _cumulative(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """Its continued fraction, by Lentz's method."""
    c, d = 1.0, 1.0 / _off_zero(1.0 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = found
        for term in (even, odd):
            d, c = 1.0 / _off_zero(1.0 + term * d), _off_zero(1.0 + term / c)
            found *= d * c
        if abs(found - before) < 1e-14 * abs(found):
            break
    return found


def _off_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
