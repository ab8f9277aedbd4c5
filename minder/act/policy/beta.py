"""How sure a rate is after a few trials: a Beta posterior with Jeffreys' prior, Beta(1/2, 1/2), and its interval. Pure.

Jeffreys' prior says least before anything was seen, and its 95 % interval covers close to 95 % for small counts, where Wald's does not
(Brown, Cai and DasGupta, Interval Estimation for a Binomial Proportion, Statistical Science 2001).
"""

from __future__ import annotations

from dataclasses import dataclass

from minder.model.share import beta_quantile

__all__ = ["Rate", "rate_of"]

_PRIOR = 0.5


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
