"""A period of a ledger, read and accounted for."""

from __future__ import annotations

import time
from collections.abc import Sequence

from minder.model.clock import parse_time
from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.offline.reliability.account import ACCOUNT_KINDS, Account, account_jobs, newest_event_s
from minder.record.incidents import Ledger
from minder.record.incidents.spans import parse_span

__all__ = ["account_events", "end_of_period", "read_account"]


def read_account(location: str, since: str = "7d", until: str = "now", job: str | None = None) -> Account:
    """The account of the last `since` (a length like 7d) before `until`: "now", "newest" (the ledger's newest event) or a time.

    Raises BadInputError (no such ledger, a length or time that is none), LedgerError.
    """
    length_s = parse_span(since, "--since")
    with Ledger(location, create=False) as ledger:
        events = ledger.events(kinds=ACCOUNT_KINDS)
    return account_events(events, length_s, until, job)


def account_events(events: Sequence[LedgerEvent], length_s: float, until: str, job: str | None) -> Account:
    """The same of events of ACCOUNT_KINDS that were read already. Raises BadInputError."""
    until_s = end_of_period(events, until)
    return account_jobs(events, until_s - length_s, until_s, job)


def end_of_period(events: Sequence[LedgerEvent], until: str) -> float:
    """Unix seconds of "now", "newest" (the newest event) or a time. Raises BadInputError."""
    if until == "now":
        return time.time()
    if until == "newest":
        return newest_event_s(events) or time.time()
    try:
        return parse_time(until)
    except ValueError as error:
        raise BadInputError(f'--until "{until}" is no time: write now, newest, or one like 2026-03-02T06:00:00Z') from error
