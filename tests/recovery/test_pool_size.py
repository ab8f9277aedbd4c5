from __future__ import annotations

import math
from fractions import Fraction

import pytest

from minder.act.recovery.pool_size import advise_standbys, binomial_quantile, estimate_rate, garwood, given_rate
from minder.model.errors import BadInputError


def test_the_published_pools_come_out() -> None:
    """ByteRobust, Table 5: 128, 256, 512 and 1,024 machines."""
    assert [item.standbys for item in advise_standbys([128, 256, 512, 1024], given_rate(0.0012))] == [2, 2, 3, 4]


@pytest.mark.parametrize(("machines", "rate", "share"), [(7, 0.3, 0.5), (40, 0.01, 0.99), (3, 0.9, 0.999), (200, 0.05, 0.01)])
def test_the_quantile_is_that_of_exact_arithmetic(machines: int, rate: float, share: float) -> None:
    p, total, k = Fraction(rate), Fraction(0), -1
    while total < Fraction(share):
        k += 1
        total += math.comb(machines, k) * p**k * (1 - p) ** (machines - k)
    assert binomial_quantile(machines, rate, share) == k


def test_a_fleet_whose_chance_of_no_failure_is_no_number_has_a_pool() -> None:
    """(1 - p)^n is below the smallest float; the P99 is near the mean and 2.33 standard deviations."""
    assert abs(binomial_quantile(1_000_000, 0.01, 0.99) - (10_000 + 2.326 * math.sqrt(9900))) < 3


@pytest.mark.parametrize(
    ("machines", "rate", "percentile", "said"),
    [(0, 0.1, 99.0, "0 machines"), (5, 1.0, 99.0, "rate 1"), (5, -0.1, 99.0, "rate -0.1"), (5, 0.1, 100.0, "percentile 100"),
     (5, math.nan, 99.0, "rate nan"), (5, 0.1, 0.0, "percentile 0")],
)  # fmt: skip
def test_numbers_that_no_fleet_has_are_refused(machines: int, rate: float, percentile: float, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        advise_standbys([machines], given_rate(rate), percentile)


def test_a_counted_rate_has_an_interval_and_so_has_the_pool() -> None:
    rate = estimate_rate(4, 4000.0)
    assert (rate.value, rate.low, rate.high) == (0.001, pytest.approx(1.0899 / 4000, rel=1e-4), pytest.approx(10.2416 / 4000, rel=1e-4))
    (advice,) = advise_standbys([1024], rate)
    assert advice.low < advice.standbys < advice.high


def test_no_failure_is_no_proof_that_none_will_come() -> None:
    rate = estimate_rate(0, 100.0)
    assert rate.value == rate.low == 0.0 and rate.high == pytest.approx(0.0369, abs=1e-4)
    (advice,) = advise_standbys([128], rate)
    assert (advice.standbys, advice.low) == (0, 0) and advice.high >= 9


def test_more_than_a_failure_a_day_is_a_rate_but_no_chance() -> None:
    """A lab loses a machine every minute: its pool is at most all of its machines."""
    (advice,) = advise_standbys([6], estimate_rate(1, 0.006))
    assert advice.standbys == 6


def test_garwood_holds_what_tables_say() -> None:
    assert garwood(100) == (pytest.approx(81.36, abs=0.01), pytest.approx(121.63, abs=0.01))
