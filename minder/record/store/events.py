"""Events in the database: insert and select, nothing else. What they mean is for minder.record.incidents."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, Row, Select, String, case, func, literal, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from minder.model.errors import LedgerError
from minder.model.history import LedgerEvent
from minder.record.json_text import read_json
from minder.record.store.engine import reading, writing
from minder.record.store.leases import Lease, demand_lease
from minder.record.store.opened import OpenedStore
from minder.record.store.rows import EventQuery, EventRow, IncidentSpan
from minder.record.store.tables import EVENTS

__all__ = ["EventQuery", "EventRow", "EventStore", "IncidentSpan", "insert_row", "is_second"]

# Built once: the controller asks these at every tick.
_INSERT, _LAST_ID = EVENTS.insert(), select(func.max(EVENTS.c.id))


class EventStore(OpenedStore):
    """The events table of one database. Every method raises LedgerError where the database refuses."""

    _lease: Lease | None = None

    def fence(self, lease: Lease | None) -> None:
        """From now on every write checks in its own transaction that this lease holds, and raises LeaseLostError where it does not."""
        self._lease = lease

    def check_fence(self) -> None:
        """Raises LeaseLostError where the lease is another's."""
        if self._lease is not None:
            with reading(self._engine) as connection:
                demand_lease(connection, self._lease)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with writing(self._engine) as connection:
            if self._lease is not None:
                demand_lease(connection, self._lease)
            yield connection

    def insert(self, row: EventRow) -> LedgerEvent:
        """On disk when this returns."""
        with self._writing() as connection:
            return insert_row(connection, row)

    def insert_once(self, row: EventRow) -> tuple[LedgerEvent, bool]:
        """Insert, or find the event of the same kind and operation that was there before (ours or another process's)."""
        try:
            return self.insert(row), True
        except LedgerError as error:
            clash = is_second(error)
            query = EventQuery(operation_id=row.operation_id, kinds=(row.kind,), limit=1)
            earlier = self.select(query) if clash and row.operation_id else []
            if not earlier:
                raise
            return earlier[0], False

    def insert_first(self, row: EventRow, prefix: str) -> LedgerEvent:
        """Insert as the first event of a new incident "<prefix>-<n>", n counting the incidents of the row's job."""
        of_job = EVENTS.c.job.is_(None) if row.job is None else EVENTS.c.job == row.job
        with self._writing() as connection:
            count = connection.execute(select(func.count(EVENTS.c.incident.distinct())).where(of_job)).scalar()
            return insert_row(connection, row, incident=f"{prefix}-{int(count or 0) + 1}")

    def select(self, query: EventQuery) -> list[LedgerEvent]:
        """Matching events, oldest first unless asked otherwise."""
        return self._read(_statement(query))

    def select_some(self, query: EventQuery, most_letters: int) -> tuple[list[LedgerEvent], bool]:
        """The first of them, up to that with which their payloads have so many letters; and whether others were left out for that."""
        found: list[LedgerEvent] = []
        letters = 0
        with reading(self._engine) as connection:
            for row in connection.execute(_statement(query)):
                if letters >= most_letters:
                    return found, True
                found.append(_event(row))
                letters += len(row.payload)
        return found, False

    def newest_by_job(self, kinds: Sequence[str]) -> list[LedgerEvent]:
        """Of every job the newest event of each of these kinds, oldest first."""
        newest = select(func.max(EVENTS.c.id)).where(EVENTS.c.kind.in_(tuple(kinds))).group_by(EVENTS.c.job, EVENTS.c.kind)
        return self._read(select(EVENTS).where(EVENTS.c.id.in_(newest)).order_by(EVENTS.c.id))

    def unfinished_incidents(self, closed: str, stepped: str, intent: str, decision: str, verdict: str) -> list[str]:
        """Incidents that may be open: all but those that surely are not. The arguments are kinds of events.

        Surely over is one with an event `closed` after its last `intent`, or `stepped` with no `decision` after that intent, or with a
        `verdict` "recovered" and no intent at all.
        """
        id_, kind, payload = EVENTS.c.id, EVENTS.c.kind, EVENTS.c.payload
        # a quote inside JSON text is escaped: these can only be a key and its value
        says = payload.like('%"kind":"recovered"%') | payload.like('%"kind": "recovered"%')
        closed_id, stepped_id, intent_id, decision_id = (
            func.max(case((kind == each, id_), else_=0)) for each in (closed, stepped, intent, decision)
        )
        recovered_id = func.max(case(((kind == verdict) & says, id_), else_=0))
        ended = (closed_id > intent_id) | ((stepped_id > intent_id) & (decision_id <= intent_id))
        over = ended | ((intent_id == 0) & (recovered_id > 0))
        wanted = EVENTS.c.incident.is_not(None) & kind.in_((closed, stepped, intent, decision, verdict))
        found = select(EVENTS.c.incident).where(wanted).group_by(EVENTS.c.incident).having(~over)
        with reading(self._engine) as connection:
            return [str(row.incident) for row in connection.execute(found)]

    def incidents_since(self, since_id: int) -> list[IncidentSpan]:
        """Incidents with an event above `since_id`, oldest first, without reading what happened in them.

        first_id and opened_s are of what is above it.
        """
        if since_id <= 0:
            return self._every_incident()
        # no GROUP BY: SQLite would walk through the index of all incidents for it, and what is new is little
        columns = (EVENTS.c.id, EVENTS.c.incident, EVENTS.c.job, EVENTS.c.time_s)
        found: dict[str, IncidentSpan] = {}
        with reading(self._engine) as connection:
            for row in connection.execute(select(*columns).where(EVENTS.c.id > since_id).order_by(EVENTS.c.id)):
                if row.incident is not None:
                    first = found.get(row.incident) or IncidentSpan(row.incident, row.job, row.id, row.id, row.time_s)
                    found[row.incident] = replace(first, last_id=row.id)
        return list(found.values())

    def _every_incident(self) -> list[IncidentSpan]:
        id_, incident = EVENTS.c.id, EVENTS.c.incident
        spans = select(incident, func.min(id_).label("first"), func.max(id_).label("last")).where(incident.is_not(None)).group_by(incident)
        found = spans.subquery()
        opening = select(found, EVENTS.c.job, EVENTS.c.time_s).join(EVENTS, EVENTS.c.id == found.c.first).order_by(found.c.first)
        with reading(self._engine) as connection:
            return [
                IncidentSpan(row.incident, row.job and sys.intern(row.job), row.first, row.last, row.time_s)
                for row in connection.execute(opening)
            ]

    def last_id(self) -> int:
        """The id of the newest event; 0 in an empty ledger."""
        with reading(self._engine) as connection:
            return int(connection.execute(_LAST_ID).scalar() or 0)

    def select_unanswered(self, kind: str, answer: str, job: str | None) -> list[LedgerEvent]:
        """Events of `kind` for whose operation no event of kind `answer` stands."""
        answered = select(EVENTS.c.operation_id).where(EVENTS.c.kind == answer, EVENTS.c.operation_id.is_not(None))
        return self._read(_statement(EventQuery(job=job, kinds=(kind,))).where(EVENTS.c.operation_id.not_in(answered)))

    def _read(self, statement: Select[Any]) -> list[LedgerEvent]:
        with reading(self._engine) as connection:
            return [_event(row) for row in connection.execute(statement)]


@lru_cache(maxsize=256)
def _statement(query: EventQuery) -> Select[Any]:
    """Kept: a tick asks what the one before it asked, and putting a question together takes as long as its answer."""
    columns = [_payload_of(query) if column is EVENTS.c.payload else column for column in EVENTS.c]
    found = select(*columns).where(EVENTS.c.id > query.since_id).order_by(EVENTS.c.id.desc() if query.newest_first else EVENTS.c.id)
    if query.before_id is not None:
        found = found.where(EVENTS.c.id < query.before_id)
    if query.any_incident:
        of_incidents = select(EVENTS.c.incident).where(EVENTS.c.incident.is_not(None))
        of_job = of_incidents if query.job is None else of_incidents.where(EVENTS.c.job == query.job)
        found = found.where(EVENTS.c.incident.in_(of_job))
    for name in ("incident", "operation_id") if query.any_incident else ("job", "incident", "operation_id"):
        if (value := getattr(query, name)) is not None:
            found = found.where(EVENTS.c[name] == value)
    if query.incidents is not None:
        found = found.where(EVENTS.c.incident.in_(query.incidents))
    if query.kinds is not None:
        # An incident or an operation has a few events, a kind a hundred thousand; without statistics SQLite reads those of the kind.
        few = query.incident is not None or query.incidents is not None or query.operation_id is not None
        found = found.where((EVENTS.c.kind.concat("") if few else EVENTS.c.kind).in_(query.kinds))
    if query.without_kinds:
        found = found.where(EVENTS.c.kind.not_in(query.without_kinds))
    if query.orders_only:  # a quote inside JSON text is escaped: this can only be a key and its value
        said = EVENTS.c.payload.like('%"kind":"order"%') | EVENTS.c.payload.like('%"kind": "order"%')
        found = found.where((EVENTS.c.kind != "signal") | said)
    if query.incident_since_s is not None:
        opened = select(EVENTS.c.incident).where(EVENTS.c.incident.is_not(None)).group_by(EVENTS.c.incident)
        found = found.where(EVENTS.c.incident.in_(opened.having(func.min(EVENTS.c.time_s) >= query.incident_since_s)))
    return found if query.limit is None else found.limit(query.limit)


def is_second(error: LedgerError) -> bool:
    """Whether a write was refused because the operation has such an event already."""
    return isinstance(error.__cause__, IntegrityError)


def insert_row(connection: Connection, row: EventRow, *, incident: str | None = None) -> LedgerEvent:
    """Insert within the caller's transaction."""
    values = {
        "time_s": row.time_s,
        "kind": row.kind,
        "job": row.job,
        "incident": incident or row.incident,
        "operation_id": row.operation_id,
        "payload": row.payload,
    }
    key = connection.execute(_INSERT, values).inserted_primary_key
    assert key is not None
    return LedgerEvent(id=int(key[0]), **{**values, "payload": json.loads(row.payload)})


class _WithoutRanks(FunctionElement[str]):
    """The payload of a generation without the machine of each rank: left out by the database, which need not make a dict of it."""

    type = String()
    inherit_cache = True


@compiles(_WithoutRanks, "sqlite")
def _without_ranks_sqlite(element: _WithoutRanks, compiler: SQLCompiler, **given: Any) -> str:
    return f"json_remove({compiler.process(element.clauses, **given)}, '$.rank_machine')"


@compiles(_WithoutRanks, "postgresql")
def _without_ranks_postgresql(element: _WithoutRanks, compiler: SQLCompiler, **given: Any) -> str:
    return f"(CAST({compiler.process(element.clauses, **given)} AS jsonb) - 'rank_machine')::text"


def _payload_of(query: EventQuery) -> ColumnElement[str]:
    """The payload where it is wanted: of a job of thousands of ranks it has 200 kB."""
    less: list[tuple[ColumnElement[bool], ColumnElement[str]]] = []
    if query.bare_kinds:
        less.append((EVENTS.c.kind.in_(query.bare_kinds), literal("{}")))
    if query.without_ranks:
        less.append((EVENTS.c.kind == "generation_started", _WithoutRanks(EVENTS.c.payload)))
    return case(*less, else_=EVENTS.c.payload).label("payload") if less else EVENTS.c.payload


def _event(row: Row[Any]) -> LedgerEvent:
    id_, time_s, kind, job, incident, operation_id, payload = cast(tuple[Any, ...], row)
    return LedgerEvent(
        id_, time_s, sys.intern(kind), job and sys.intern(job), incident, operation_id, cast(dict[str, Any], read_json(payload))
    )
