"""Incidents, folded once: one is read again only where the ledger has a newer event of it. Lists of thousands stay quick."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from minder.model.clock import format_time
from minder.model.history import LedgerEvent
from minder.record.api.incidents import IncidentSummary
from minder.record.incidents import fold_incident, kinds
from minder.record.incidents.fold import ENDING_KINDS
from minder.record.incidents.record import Incident
from minder.record.store.events import EventQuery, EventStore, IncidentSpan

__all__ = ["IncidentIndex", "Listed", "summarise", "summary_fields"]

_CHUNK = 100
_MOST_KNOWN = 5_000  # a summary is about 3 kB; what was asked for longest ago is folded again when it is asked for
_MOST_WHOLES = 64


@dataclass(frozen=True, slots=True)
class Listed:
    """An incident of the ledger, with the place of its first event: lists are ordered by it."""

    span: IncidentSpan
    summary: IncidentSummary


class IncidentIndex:
    """Summaries by incident id; safe for several threads. What the ledger had before is read once, what is new as it comes."""

    def __init__(self, events: EventStore) -> None:
        self._events = events
        self._known: OrderedDict[str, Listed] = OrderedDict()
        self._spans: dict[str, IncidentSpan] = {}
        self._read_id = 0
        self._begun_id = 0
        self._unfinished: set[str] | None = None
        self._wholes: OrderedDict[str, tuple[int, Incident]] = OrderedDict()
        self._lock = threading.Lock()

    def newest_first(self, before_id: int | None = None, job: str | None = None, since_s: float | None = None) -> Iterator[Listed]:
        """Incidents whose first event is older than `before_id`, of one job, opened since a time."""
        spans = [
            span
            for span in reversed(self._read_spans())
            if (before_id is None or span.first_id < before_id)
            and (job is None or span.job == job)
            and (since_s is None or span.opened_s >= since_s)
        ]
        yield from self._chunks(spans)

    def unfinished(self, before_id: int | None = None, job: str | None = None, since_s: float | None = None) -> Iterator[Listed]:
        """As newest_first, of those alone that are not closed."""
        spans = self._read_spans()
        with self._lock:
            wanted = set(self._unfinished or ())
        kept = [
            span
            for span in reversed([span for span in spans if span.incident in wanted])
            if (before_id is None or span.first_id < before_id)
            and (job is None or span.job == job)
            and (since_s is None or span.opened_s >= since_s)
        ]
        for item in self._chunks(kept):
            if item.summary.state != "closed":
                yield item
            else:
                with self._lock:
                    if self._spans[item.span.incident].last_id == item.span.last_id:
                        (self._unfinished or set()).discard(item.span.incident)

    def whole(self, incident: str) -> Incident | None:
        """One incident with all that is in the ledger; None where there is none. Folded again only when something new was written."""
        self._read_spans()
        with self._lock:
            span, (last_id, found) = self._spans.get(incident), self._wholes.pop(incident, (-1, None))
        if span is None:
            return None
        if found is None or last_id != span.last_id:
            found = fold_incident(self._events.select(EventQuery(incident=incident)))
        with self._lock:
            self._wholes[incident] = (span.last_id, found)
            if len(self._wholes) > _MOST_WHOLES:
                self._wholes.popitem(last=False)
        return found

    def listed(self, incidents: Collection[str]) -> list[Listed]:
        """Those of these that the ledger has, newest first."""
        self._read_spans()
        with self._lock:
            spans = [self._spans[name] for name in incidents if name in self._spans]
        return list(self._chunks(sorted(spans, key=lambda span: span.first_id, reverse=True)))

    def _read_spans(self) -> list[IncidentSpan]:
        """Every incident, oldest first."""
        with self._lock:
            if self._unfinished is None:
                begun_id = self._events.last_id()
                self._unfinished = set(self._events.unfinished_incidents(*ENDING_KINDS))
                self._begun_id = begun_id
            newest_id = self._events.last_id()
            if newest_id == self._read_id:
                return list(self._spans.values())
            for span in self._events.incidents_since(self._read_id):
                known = self._spans.get(span.incident)
                self._spans[span.incident] = span if known is None else dataclasses.replace(known, last_id=span.last_id)
                self._read_id = max(self._read_id, span.last_id)
                if span.last_id > self._begun_id:
                    self._unfinished.add(span.incident)
            self._read_id = max(self._read_id, newest_id)
            return list(self._spans.values())

    def _chunks(self, spans: Sequence[IncidentSpan]) -> Iterator[Listed]:
        for begin in range(0, len(spans), _CHUNK):
            yield from self._listed(spans[begin : begin + _CHUNK])

    def _listed(self, spans: Sequence[IncidentSpan]) -> list[Listed]:
        with self._lock:
            known = {span.incident: self._known.get(span.incident) for span in spans}
            for name, item in known.items():
                if item is not None:
                    self._known.move_to_end(name)
        stale = [span for span in spans if (item := known[span.incident]) is None or item.span.last_id != span.last_id]
        if not stale:
            return [item for item in known.values() if item is not None]
        grouped: dict[str, list[LedgerEvent]] = {span.incident: [] for span in stale}
        for event in self._events.select(EventQuery(incidents=tuple(grouped), without_kinds=(kinds.EVIDENCE,))):
            grouped[str(event.incident)].append(event)
        found = {span.incident: Listed(span, summarise(fold_incident(self._whole(span, grouped[span.incident])))) for span in stale}
        with self._lock:
            for name, item in found.items():
                self._known[name] = item
                self._known.move_to_end(name)
            while len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return [item for item in (known | found).values() if item is not None]

    def _whole(self, span: IncidentSpan, events: Sequence[LedgerEvent]) -> Sequence[LedgerEvent]:
        """An incident of which there is nothing but evidence is folded out of that."""
        return events or self._events.select(EventQuery(incident=span.incident))


def summarise(incident: Incident) -> IncidentSummary:
    """An incident as lists show it."""
    return IncidentSummary.model_validate(summary_fields(incident))


def summary_fields(incident: Incident) -> dict[str, object]:
    """The fields of IncidentSummary."""
    verdict, decision = incident.verdict, incident.decision
    return {
        "id": incident.id,
        "job": incident.job,
        "state": incident.state,
        "opened": format_time(incident.opened_s),
        "closed": None if incident.closed_s is None else format_time(incident.closed_s),
        "machines": incident.machines,
        "kind": verdict.kind if verdict else None,
        "cause": verdict.cause if verdict else None,
        "tier": verdict.tier if verdict else None,
        "confidence": verdict.confidence if verdict else None,
        "action": decision.action if decision else None,
        "reason": decision.reason if decision else None,
        "evicted": incident.evicted,
        "outcomes": dict(incident.outcomes),
    }
