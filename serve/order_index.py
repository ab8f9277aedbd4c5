"""What orders made of each job (updates, batches left out), folded once out of the ledger; what is new is read as it comes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.updates import Order, UpdateFold, Version
from minder.record.store.events import EventQuery, EventStore

__all__ = ["OrderIndex", "Running", "UpdatePast"]


class _Fold(Protocol):
    def add(self, event: LedgerEvent) -> None: ...


F = TypeVar("F", bound=_Fold)
T = TypeVar("T")


class OrderIndex(Generic[F]):
    """Safe for several threads. Of a job without an order of kind `asked` nothing is read but that."""

    def __init__(self, events: EventStore, asked: str, names: Sequence[str], begin: Callable[[], F]) -> None:
        self._events, self._asked, self._names, self._begin = events, asked, tuple(names), begin
        self._asked_id = 0
        self._folds: dict[str, tuple[F, int]] = {}  # by job, and the number of the last event that is in it
        self._lock = threading.Lock()

    def read(self, job: str, view: Callable[[F], T]) -> T | None:
        """What `view` makes of the job's fold; None where nothing was ever ordered. Raises LedgerError."""
        with self._lock:
            for event in self._events.select(EventQuery(since_id=self._asked_id, kinds=(self._asked,))):
                self._asked_id = event.id
                if event.job is not None and event.job not in self._folds:  # what was before its first order is as nothing
                    self._folds[event.job] = (self._begin(), event.id - 1)
            if job not in self._folds:
                return None
            fold, read_id = self._folds[job]
            for event in self._events.select(EventQuery(job=job, kinds=self._names, since_id=read_id)):
                fold.add(event)
                self._folds[job] = (fold, event.id)
            return view(fold)


@dataclass(frozen=True, slots=True)
class Running:
    """The version that a job runs, since when (unix seconds; None for what its launchers were started with), the newest order, the first
    incident since, "" without one."""

    version: Version
    since_s: float | None
    order: Order
    incident: str


@dataclass(slots=True)
class UpdatePast:
    """Versions of one job, and which incidents came first after them."""

    fold: UpdateFold = field(default_factory=UpdateFold)
    notes: list[tuple[int, float, str]] = field(default_factory=list)  # (version, unix seconds, incident)

    def add(self, event: LedgerEvent) -> None:
        if event.kind != kinds.NOTE:
            self.fold.add(event)
        elif "update" in event.payload:
            self.notes.append((int(event.payload["update"]), event.time_s, event.incident or ""))

    def running(self) -> Running | None:
        fold = self.fold
        if not fold.orders:
            return None
        version = fold.versions[fold.running]
        first = next((name for number, time_s, name in self.notes if number == version.number and time_s >= fold.since_s), "")
        return Running(version, fold.since_s if version.number else None, fold.orders[-1], first)
