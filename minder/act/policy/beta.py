"""How sure a rate is after a few trials: a Beta posterior with Jeffreys' prior, Beta(1/2, 1/2), and its interval. Pure.

Jeffreys' prior says least before anything was seen, and its 95 % interval covers close to 95 % for small counts, where Wald's does not
(Brown, Cai and DasGupta, Interval Estimation for a Binomial Proportion, Statistical Science 2001).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Rate", "beta_quantile", "rate_of"]

_PRIOR = 0.5
_TERMS, _TINY = 300, 1e-300


@dataclass(frozen=True, slots=True)
class Rate:
    """A share in 0..1: the posterior's mean and its 95 % interval."""

    mean: float
    low: float
    high: float


def rate_of(yes: int, no: int) -> Rate:
    """Of `yes` successes and `no` failures; 0 or more each.

    >>> rate = rate_of(0, 4)
    >>> f"{rate.mean:.2f} {rate.low:.3f} {rate.high:.2f}"
    '0.10 0.000 0.44'
    """
    a, b = yes + _PRIOR, no + _PRIOR
    return Rate(a / (a + b), beta_quantile(a, b, 0.025), beta_quantile(a, b, 0.975))


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
