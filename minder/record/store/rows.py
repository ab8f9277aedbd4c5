"""What goes into the table of events and what is asked of it, as plain values: readable without a database library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["EventQuery", "EventRow", "IncidentSpan"]


@dataclass(frozen=True, slots=True)
class EventRow:
    """One event before it has an id; `payload` is JSON text."""

    time_s: float
    kind: str
    payload: str
    job: str | None = None
    incident: str | None = None
    operation_id: str | None = None


class EventQuery(NamedTuple):
    """Every condition that is given must hold.

    `any_incident`: events that belong to an incident; with `job`, to one that has an event of this job (a machine that is given
    back to every job says so without a job). `incident_since_s`: events of incidents whose first event is not older.
    `incidents`: events of any of these (some hundred at most). `before_id`: only older ones. `newest_first`: the order, and so
    which ones a limit leaves out. `orders_only`: of the signals only operators' orders. `bare_kinds`: events of these come without
    their payload. `without_ranks`: generations come without `rank_machine`, which has 4 MB in a job of 200,000 ranks.
    """

    since_id: int = 0
    job: str | None = None
    incident: str | None = None
    operation_id: str | None = None
    kinds: tuple[str, ...] | None = None
    without_kinds: tuple[str, ...] = ()
    any_incident: bool = False
    incident_since_s: float | None = None
    incidents: tuple[str, ...] | None = None
    limit: int | None = None
    before_id: int | None = None
    newest_first: bool = False
    orders_only: bool = False
    bare_kinds: tuple[str, ...] = ()
    without_ranks: bool = False


@dataclass(frozen=True, slots=True)
class IncidentSpan:
    """Where an incident's events stand in the ledger: ids of its first and last one time of the first, its job."""

    incident: str
    job: str | None
    first_id: int
    last_id: int
    opened_s: float
