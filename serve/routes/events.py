"""The ledger's events: as pages, and live as server-sent events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from minder.model.clock import format_time
from minder.model.errors import LedgerError
from minder.model.history import LedgerEvent
from minder.record.api.access import Caller
from minder.record.api.fields import EventId, IncidentId, JobName, Page
from minder.record.api.incidents import Event
from minder.record.incidents import kinds
from minder.record.incidents.timeline import describe
from minder.record.store.events import EventQuery
from serve.access import Viewer, authenticate_again, sees
from serve.answers import cursor_id, tagged
from serve.live_scores import SCORES, ScoreFeed
from serve.problems import refuse
from serve.routes.incidents import Cursor, since_seconds
from serve.state import Service, service_of

__all__ = ["Filter", "event_answer", "router", "stream_lines"]

router = APIRouter(prefix="/v1/events", tags=["events"])
_SILENCE_S = 15.0
_RECHECK_S = 30.0
_BATCH = 1000
_MOST_LETTERS = 2**20  # of a page's payloads: one generation of 200,000 ranks has four times as many
Job = Annotated[JobName | None, Query(description="Only of this job.")]
Kinds = Annotated[list[str] | None, Query(alias="kind", max_length=40, description="Only these kinds; may stand several times.")]
EventLimit = Annotated[int, Query(ge=1, le=1000, description="How many at most.")]
InIncident = Annotated[IncidentId | None, Query(description="Only of this incident.")]
LastSeen = Annotated[EventId | None, Header(alias="Last-Event-ID", description="Go on after this event; the newest if not given.")]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events a caller wants, and may see."""

    caller: Caller
    job: str | None = None
    kinds: tuple[str, ...] | None = None
    incident: str | None = None
    scores: bool = False

    def takes(self, event: LedgerEvent) -> bool:
        if not sees(self.caller, event.job):
            return False
        if self.kinds is not None and event.kind not in self.kinds:
            return False
        return self.job in (None, event.job) and self.incident in (None, event.incident)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which events a page is about: query parameters."""

    job: Job = None
    kind: Kinds = None
    incident: InIncident = None
    incidents_since: Annotated[
        str | None, Query(max_length=40, description="Only of incidents opened since: ISO 8601; `job`: of incidents of this job.")
    ] = None


@router.get("", response_model=Page[Event])
def list_events(
    request: Request, caller: Viewer, wanted: Annotated[Wanted, Depends()], limit: EventLimit = 50, cursor: Cursor = None
) -> Response:
    """Events, oldest first: the audit trail. Give `next` as `cursor` to go on; poll the last page with its ETag.

    A page has fewer than `limit` where they are large: it ends with the event that makes it a megabyte."""
    service, names = service_of(request), _known(wanted.kind)
    opened_s = since_seconds(wanted.incidents_since)
    whole = opened_s is not None  # an incident's events, also those that name no job
    filtered = Filter(caller, None if whole else wanted.job, names, wanted.incident)
    items: list[LedgerEvent] = []
    since_id, more = cursor_id(cursor) or 0, True
    while more and len(items) <= limit:
        query = EventQuery(
            since_id=since_id,
            job=wanted.job,
            incident=wanted.incident,
            kinds=names,
            any_incident=whole,
            incident_since_s=opened_s,
            limit=limit + 1 if caller.jobs is None else _BATCH,
        )
        found, cut = service.events.select_some(query, _MOST_LETTERS)
        items += [event for event in found if filtered.takes(event)]
        more = cut or len(found) == query.limit
        if cut and items:
            break
        since_id = found[-1].id if found else since_id
    answers = tuple(event_answer(event) for event in items[:limit])
    return tagged(request, Page[Event](items=answers, next=str(answers[-1].id) if cut or len(items) > limit else None))


def _known(given: list[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    known = {getattr(kinds, name) for name in kinds.__all__}
    if not set(given) <= known:
        raise refuse(422, f"kind must be one of {', '.join(sorted(known))}")
    return tuple(given)


def _with_scores(given: list[str] | None) -> tuple[bool, tuple[str, ...] | None]:
    """Whether scores are wanted too, and which kinds of the ledger's events."""
    return (True, _known([name for name in given if name != SCORES])) if given is not None and SCORES in given else (False, _known(given))


def event_answer(event: LedgerEvent) -> Event:
    """An event without what was captured, which can be megabytes."""
    data = {key: value for key, value in event.payload.items() if event.kind != kinds.EVIDENCE or key != "data"}
    return Event(
        id=event.id,
        time=format_time(event.time_s),
        time_s=event.time_s,
        operation_id=event.operation_id,
        kind=event.kind,
        job=event.job,
        incident=event.incident,
        what=describe(event),
        data=data,
    )


@router.get("/stream", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
async def stream_events(
    request: Request, caller: Viewer, job: Job = None, kind: Kinds = None, incident: InIncident = None, seen: LastSeen = None
) -> Response:
    """New events as they are written, as server-sent events: `id`, `event` (the kind), `data` (an Event as JSON).

    A comment every 15 seconds says that the stream is alive; `event: degraded` that the ledger cannot be read. A client that
    comes back with Last-Event-ID misses nothing. The stream ends when the token does. With `kind=scores` among the kinds it also has
    the scores of the jobs whose controllers this service sees, every five seconds where they changed (1 is the threshold).
    """
    service, (scores, names) = service_of(request), _with_scores(kind)
    wanted = Filter(caller, job, names, incident, scores)
    if service.open_streams >= service.settings.limits.streams:
        raise refuse(429, "too many event streams are open: close some, or read pages of /v1/events", Retry_After="30")
    since_id = seen if seen is not None else await asyncio.to_thread(service.events.last_id)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_counted(service, stream_lines(service, wanted, since_id, request)), 200, headers, "text/event-stream")


async def _counted(service: Service, lines: AsyncIterator[str]) -> AsyncIterator[str]:
    service.open_streams += 1
    service.metrics.streams.inc()
    try:
        async for line in lines:
            yield line
    finally:
        service.open_streams -= 1
        service.metrics.streams.dec()


async def stream_lines(service: Service, wanted: Filter, since_id: int, request: Request) -> AsyncIterator[str]:
    """The stream's text, piece by piece."""
    yield ": events of the ledger\n\n"
    checked_s, failures = time.monotonic(), service.tail.failures
    spoken_s = checked_s
    feed = ScoreFeed(service, lambda job: sees(wanted.caller, job), wanted.job) if wanted.scores else None
    while True:
        if time.monotonic() - checked_s > _RECHECK_S:
            checked_s = time.monotonic()
            if not await asyncio.to_thread(authenticate_again, service, request.headers.get("authorization")):
                return
        if service.tail.failures != failures:
            failures = service.tail.failures
            yield 'event: degraded\ndata: {"what": "the ledger cannot be read: nothing is known of what happens now"}\n\n'
        try:
            pieces = [] if feed is None else await asyncio.to_thread(feed.pieces, since_id)
            for piece in pieces:
                yield piece
            new = await service.tail.after(since_id, _SILENCE_S if feed is None else min(_SILENCE_S, feed.wait_s()))
        except LedgerError:
            await asyncio.sleep(1.0)
            continue
        if new or pieces:
            spoken_s = time.monotonic()
        elif time.monotonic() - spoken_s >= _SILENCE_S - 1.0:
            spoken_s = time.monotonic()
            yield ": alive\n\n"
        if not new:
            continue
        since_id = new[-1].id
        for event in new:
            if wanted.takes(event):
                body = json.dumps(event_answer(event).model_dump(mode="json"))
                yield f"id: {event.id}\nevent: {event.kind}\ndata: {body}\n\n"
