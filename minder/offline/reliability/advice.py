"""Standby advice for a reader, from a given rate or from what the ledger counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from minder.act.recovery.pool_size import DEFAULT_RATE, FEW_FAILURES, FailureRate, StandbyAdvice, estimate_rate
from minder.model.errors import BadInputError
from minder.offline.reliability.account import Account
from minder.offline.reliability.failures import FailureCount, count_failures, find_departures
from minder.offline.reliability.reading import read_account

__all__ = ["CountedRate", "advice_json", "advice_notes", "advice_rows", "rate_from_account", "rate_from_ledger"]


@dataclass(frozen=True, slots=True)
class CountedRate:
    """A failure rate and the count behind it."""

    rate: FailureRate
    count: FailureCount


def rate_from_ledger(location: str, since: str, job: str | None) -> CountedRate:
    """Raises BadInputError where the ledger records no run in this time: no data is no rate."""
    return rate_from_account(read_account(location, since, "now", job))


def rate_from_account(account: Account) -> CountedRate:
    """The same of a period that is accounted for already."""
    count = count_failures(find_departures(account.incidents), account)
    if not count.machine_days > 0:
        raise BadInputError("no run is recorded in this time, so no failure rate can be counted: use --rate, or a longer --since")
    return CountedRate(estimate_rate(count.failures, count.machine_days), count)


def advice_rows(advice: Sequence[StandbyAdvice], counted: bool) -> list[tuple[str, ...]]:
    """A header and a row per size; with an interval where the rate was counted."""
    rows: list[tuple[str, ...]] = [("machines", "failures a day", "standbys", *(("with the rate's 95 % interval",) if counted else ()))]
    for item in advice:
        interval = (f"{item.low} to {item.high}",) if counted else ()
        rows.append((str(item.machines), f"{item.expected_per_day:.2f}", str(item.standbys), *interval))
    return rows


def advice_notes(rate: FailureRate, percentile: float, counted: CountedRate | None) -> list[str]:
    """What the numbers rest on, in words."""
    lines = [f"rate {rate.value:.5f} failures per machine and day; the pool covers {percentile:g} % of days and is refilled within one"]
    lines.append(
        "not covered: a switch that takes all machines behind it at once (32 at ByteRobust, on less than one day in a hundred); "
        'cover = "switch" in [pool] of job.toml keeps enough for the largest of a job'
    )
    if counted is None:
        return lines
    count = counted.count
    lines.append(
        f"counted: machines that left {count.failures} (evicted {count.evicted}, in a dry run {count.dry}; confirmed {count.confirmed}, "
        f"no fault found {count.no_fault_found}) in {count.machine_days:.3g} machine-days; "
        f"95 % interval of the rate {rate.low:.5f} to {rate.high:.5f}"
    )
    if not rate.has_days:
        lines.append(
            f"too short a time to say anything of a day: until weeks are counted, plan with --rate {DEFAULT_RATE:g} (ByteRobust's)"
        )
    elif count.failures < FEW_FAILURES:
        lines.append(
            f"fewer than {FEW_FAILURES} failures: the rate is hardly known; plan with the upper end, or with a larger fleet's rate"
        )
    return lines


def advice_json(advice: Sequence[StandbyAdvice], rate: FailureRate, percentile: float, counted: CountedRate | None) -> dict[str, Any]:
    """Pools with their rate; `counted` is null where the rate was given."""
    count = None if counted is None else counted.count
    return {
        "percentile": percentile,
        "rate": {"value": rate.value, "low": rate.low, "high": rate.high},
        "counted": None
        if count is None
        else {name: getattr(count, name) for name in ("failures", "evicted", "dry", "confirmed", "no_fault_found", "machine_days")},
        "few_failures": count is not None and count.failures < FEW_FAILURES,
        "advice": [
            {
                "machines": item.machines,
                "standbys": item.standbys,
                "low": item.low,
                "high": item.high,
                "failures_per_day": item.expected_per_day,
            }
            for item in advice
        ],
    }
