"""Which version of its code each job runs, folded once out of the ledger; what is new is read as it comes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.updates import UPDATE_KINDS, Order, UpdateFold, Version
from minder.record.store.events import EventQuery, EventStore

__all__ = ["Running", "UpdateIndex"]

_KINDS = (*UPDATE_KINDS, kinds.NOTE)


@dataclass(frozen=True, slots=True)
class Running:
    """The version that a job runs, since when (unix seconds; None for what its launchers were started with), the newest order that any
    version was asked for with, and the first incident since, "" without one."""

    version: Version
    since_s: float | None
    order: Order
    incident: str


@dataclass(slots=True)
class _Past:
    fold: UpdateFold = field(default_factory=UpdateFold)
    notes: list[tuple[int, float, str]] = field(default_factory=list)  # (version, unix seconds, incident)
    read_id: int = 0

    def add(self, event: LedgerEvent) -> None:
        if event.kind != kinds.NOTE:
            self.fold.add(event)
        elif "update" in event.payload:
            self.notes.append((int(event.payload["update"]), event.time_s, event.incident or ""))
        self.read_id = event.id


class UpdateIndex:
    """Safe for several threads. Of a job that was never updated nothing is read but that."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self._asked_id = 0
        self._pasts: dict[str, _Past] = {}
        self._lock = threading.Lock()

    def running(self, job: str) -> Running | None:
        """None of a job that was never updated. Raises LedgerError."""
        with self._lock:
            for event in self._events.select(EventQuery(since_id=self._asked_id, kinds=(kinds.UPDATE_ASKED,))):
                self._asked_id = event.id
                if event.job is not None:  # nothing before its first order says what it runs
                    self._pasts.setdefault(event.job, _Past(read_id=event.id - 1))
            if (past := self._pasts.get(job)) is None:
                return None
            for event in self._events.select(EventQuery(job=job, kinds=_KINDS, since_id=past.read_id)):
                past.add(event)
            return _running(past)


def _running(past: _Past) -> Running | None:
    fold = past.fold
    if not fold.orders:
        return None
    version = fold.versions[fold.running]
    first = next((name for number, time_s, name in past.notes if number == version.number and time_s >= fold.since_s), "")
    return Running(version, fold.since_s if version.number else None, fold.orders[-1], first)
