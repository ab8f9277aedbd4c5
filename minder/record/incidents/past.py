"""What a process knows of the ledger's past: read once, window by window, and after that only what is new.

The database holds ids in the order in which their writes became visible (one writer at a time), so an id above the last one that was
read is all that can be new.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minder.model.history import Approval, History, LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.fold import ENDING_KINDS, fold_incident
from minder.record.incidents.history import HISTORY_KINDS, HistoryFold, fold_suspects
from minder.record.incidents.record import Incident
from minder.record.store.follow import EventFollower
from minder.record.store.rows import EventQuery

if TYPE_CHECKING:
    from minder.record.store.events import EventStore

__all__ = ["Past"]

_CHUNK = 100
_KEPT_S = 3600.0  # verdicts older than what was asked for by more than this are let go


@dataclass(frozen=True, slots=True)
class _Folded:
    """An incident as of its newest event, with the place of its first one and the jobs that its events are of."""

    first_id: int
    jobs: frozenset[str | None]
    incident: Incident


class Past:
    """Safe for several threads. Every method raises LedgerError where the database cannot be read."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self._fold, self._history = HistoryFold(), EventFollower(events, HISTORY_KINDS)
        self._verdicts: deque[LedgerEvent] = deque()
        self._accusations, self._from_s = EventFollower(events, (kinds.VERDICT,)), float("inf")
        self._maybe_open: dict[str, _Folded | None] | None = None  # None: to be folded anew
        self._incident_id = 0
        self._lock = threading.Lock()

    def history(self, job: str, now_s: float) -> History:
        """As fold_history of the whole ledger."""
        with self._lock:
            self._read_history()
            return self._fold.history(job, now_s)

    def approvals(self, job: str) -> list[Approval]:
        """As fold_approvals of the job's events."""
        with self._lock:
            self._read_history()
            return self._fold.approvals(job)

    def suspects(self, since_s: float) -> dict[str, float]:
        """As fold_suspects of the whole ledger."""
        with self._lock:
            if since_s < self._from_s:  # at first, and where the clock was set far back
                self._verdicts.clear()
                self._accusations.read_id, self._from_s = 0, since_s - _KEPT_S
            self._from_s = max(self._from_s, since_s - _KEPT_S)
            while self._verdicts and self._verdicts[0].time_s < self._from_s:
                self._verdicts.popleft()
            self._verdicts.extend(_bare(event) for event in self._accusations.new() if event.time_s >= self._from_s)
            return fold_suspects(self._verdicts, since_s)

    def open_incidents(self, job: str | None) -> list[Incident]:
        """Those that are not closed, oldest first. Captured evidence is not loaded."""
        with self._lock:
            known = self._touched()
            stale = sorted(name for name, folded in known.items() if folded is None)
            for begin in range(0, len(stale), _CHUNK):
                for name, folded in self._folded(stale[begin : begin + _CHUNK]).items():
                    known[name] = folded
            for name in [name for name, item in known.items() if item is None or item.incident.state == "closed"]:
                del known[name]  # it comes back with the next event of it
            found = [item for item in known.values() if item is not None and (job is None or job in item.jobs)]
            return [item.incident for item in sorted(found, key=lambda item: item.first_id)]

    def _read_history(self) -> None:
        for event in self._history.new():
            self._fold.add(event)

    def _touched(self) -> dict[str, _Folded | None]:
        """What may be open, with None for what has something new."""
        newest_id = self._events.last_id()
        if self._maybe_open is None:
            self._maybe_open = dict.fromkeys(self._events.unfinished_incidents(*ENDING_KINDS))
            self._incident_id = newest_id
        elif newest_id > self._incident_id:
            for span in self._events.incidents_since(self._incident_id):
                self._maybe_open[span.incident] = None
            self._incident_id = newest_id
        return self._maybe_open

    def _folded(self, names: Sequence[str]) -> dict[str, _Folded]:
        grouped: dict[str, list[LedgerEvent]] = {}
        for event in self._events.select(EventQuery(incidents=tuple(names), without_kinds=(kinds.EVIDENCE,))):
            grouped.setdefault(str(event.incident), []).append(event)
        return {name: _Folded(own[0].id, frozenset(event.job for event in own), fold_incident(own)) for name, own in grouped.items()}


def _bare(event: LedgerEvent) -> LedgerEvent:
    """A verdict without its evidence: only whom it accuses is asked for."""
    return replace(event, payload={key: event.payload.get(key) for key in ("machines", "kind", "tier")})
