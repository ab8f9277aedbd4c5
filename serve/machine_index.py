"""What the ledger says of machines, read once: of thousands of evictions only who, when and how it ended is kept in memory."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict

from minder.model.history import LedgerEvent
from minder.record.incidents.machines import MACHINE_KINDS, RETEST_PREFIX, MachineRecord, fold_machines
from minder.record.incidents.retests import PastRetest, fold_retests
from minder.record.store.events import EventQuery, EventStore

__all__ = ["MachineIndex"]

_TESTED = ("detail", "by", "reason")  # of tests that were ordered, besides
_KEPT = ("action", "machines", "machine", "outcome")
_MOST_FOLDS = 32


class MachineIndex:
    """Safe for several threads."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self._slim: list[LedgerEvent] = []
        self._tests: list[LedgerEvent] = []  # of _slim, what is of tests
        self._folds: OrderedDict[tuple[str, ...] | None, tuple[int, dict[str, MachineRecord]]] = OrderedDict()
        self._lock = threading.Lock()

    def records(self, jobs: tuple[str, ...] | None) -> dict[str, MachineRecord]:
        """Machine to record, as far as these jobs (None: all) know of it. Not to be changed by who is given it."""
        with self._lock:
            self._read()
            newest_id = self._slim[-1].id if self._slim else 0
            read_id, records = self._folds.pop(jobs, (-1, {}))
            if read_id != newest_id:
                records = fold_machines([event for event in self._slim if jobs is None or event.job is None or event.job in jobs])
            self._folds[jobs] = (newest_id, records)
            if len(self._folds) > _MOST_FOLDS:
                self._folds.popitem(last=False)
            return records

    def retests(self, jobs: tuple[str, ...] | None, machine: str) -> list[PastRetest]:
        """Every test of a machine that was ordered of one of these jobs (None: any), oldest first."""
        with self._lock:
            self._read()
            return fold_retests([event for event in self._tests if jobs is None or event.job in jobs], machine)

    def _read(self) -> None:
        since_id = self._slim[-1].id if self._slim else 0
        new = [_slim(event) for event in self._events.select(EventQuery(since_id=since_id, kinds=MACHINE_KINDS))]
        self._slim += new
        self._tests += [event for event in new if _is_of_test(event)]


def _is_of_test(event: LedgerEvent) -> bool:
    return (event.operation_id or "").startswith(RETEST_PREFIX)


def _slim(event: LedgerEvent) -> LedgerEvent:
    kept = (*_KEPT, *_TESTED) if _is_of_test(event) else _KEPT
    return dataclasses.replace(event, payload={key: event.payload[key] for key in kept if key in event.payload})
