"""Incidents: what happened, why we think so, what was done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.responses import Response

from minder.model.clock import format_time, parse_time
from minder.record.api.access import Caller
from minder.record.api.fields import NAME, IncidentId, JobName, Page
from minder.record.api.incidents import Capture, IncidentDetail, IncidentSummary, NoteRequest, Recorded
from minder.record.incidents import Incident, kinds
from minder.record.incidents.report import incident_json, incident_report
from minder.record.store.events import EventQuery
from serve.access import Operator, Viewer, demand_job, sees
from serve.actions import Act, Planned
from serve.answers import cursor_id, tagged
from serve.bundles import bundle_of
from serve.incident_index import summary_fields
from serve.problems import refuse
from serve.state import Service, service_of

__all__ = [
    "Cursor",
    "Limit",
    "Since",
    "Wanted",
    "captures_page",
    "find_incident",
    "incident_detail",
    "incidents_page",
    "plan_note",
    "router",
    "since_seconds",
    "zipped",
]

router = APIRouter(prefix="/v1/incidents", tags=["incidents"])
Limit = Annotated[int, Query(ge=1, le=200, description="How many at most.")]
Cursor = Annotated[str | None, Query(max_length=32, description="`next` of the page before.")]
Since = Annotated[str | None, Query(max_length=40, description="ISO 8601; a time without a zone is UTC.")]
State = Annotated[Literal["open", "acting", "recovering", "closed"] | None, Query(description='"open": not closed.')]
Id = Annotated[IncidentId, Path(pattern=NAME, max_length=255, description="Id of the incident.")]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which incidents a list is about: query parameters."""

    job: Annotated[JobName | None, Query(description="Only of this job.")] = None
    state: State = None
    since: Since = None


@router.get("", response_model=Page[IncidentSummary])
def list_incidents(
    request: Request, caller: Viewer, wanted: Annotated[Wanted, Depends()], limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Incidents, newest first. A page stays the same when new incidents open: they come before it."""
    return tagged(request, incidents_page(service_of(request), caller, wanted, limit, cursor))


def incidents_page(service: Service, caller: Caller, wanted: Wanted, limit: int, cursor: str | None) -> Page[IncidentSummary]:
    """Those that the caller may see."""
    items: list[IncidentSummary] = []
    last: int | None = None
    search = service.incidents.newest_first if wanted.state in (None, "closed") else service.incidents.unfinished
    for listed in search(cursor_id(cursor), wanted.job, since_seconds(wanted.since)):
        if not sees(caller, listed.span.job) or not _is_in(listed.summary.state, wanted.state):
            continue
        if len(items) == limit:
            return Page[IncidentSummary](items=tuple(items), next=str(last))
        items.append(listed.summary)
        last = listed.span.first_id
    return Page[IncidentSummary](items=tuple(items))


def _is_in(state: str, wanted: str | None) -> bool:
    return wanted is None or state == wanted or (wanted == "open" and state != "closed")


def since_seconds(since: str | None) -> float | None:
    """Unix seconds of a `since`. 422 for what is no time."""
    if since is None:
        return None
    try:
        return parse_time(since)
    except (ValueError, OverflowError):
        raise refuse(422, "since is no time: give ISO 8601, like 2026-03-02T06:12:31Z") from None


@router.get("/{incident}", response_model=IncidentDetail)
def show_incident(request: Request, caller: Viewer, incident: Id) -> Response:
    """One incident with its evidence, its decisions, its timeline, and how to undo what was done."""
    return tagged(request, incident_detail(find_incident(service_of(request), caller, incident)))


@router.get("/{incident}/captures", response_model=Page[Capture])
def list_captures(request: Request, caller: Viewer, incident: Id, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """What was captured before anything was ended: stacks, sockets, last log lines; oldest first."""
    return tagged(request, captures_page(service_of(request), caller, incident, limit, cursor))


def captures_page(service: Service, caller: Caller, incident: str, limit: int, cursor: str | None) -> Page[Capture]:
    """404 and 403 as of find_incident."""
    find_incident(service, caller, incident)
    query = EventQuery(since_id=cursor_id(cursor) or 0, incident=incident, kinds=(kinds.EVIDENCE,), limit=limit + 1)
    found = service.events.select(query)
    items = tuple(
        Capture(
            time=format_time(event.time_s),
            machine=event.payload.get("machine"),
            what=str(event.payload.get("what", "data")),
            data=event.payload.get("data"),
        )
        for event in found[:limit]
    )
    return Page[Capture](items=items, next=str(found[limit - 1].id) if len(found) > limit else None)


@router.get("/{incident}/bundle", response_class=Response, responses={200: {"content": {"application/zip": {}}}})
def get_bundle(request: Request, caller: Viewer, incident: Id) -> Response:
    """A ZIP for the vendor: the accused machines' evidence, without the job, other machines, addresses, paths and secrets."""
    service = service_of(request)
    return zipped(service, find_incident(service, caller, incident))


def zipped(service: Service, found: Incident) -> Response:
    """The vendor's bundle as a file to keep."""
    headers = {"Content-Disposition": f'attachment; filename="{found.id.replace(":", "_")}.zip"', "Cache-Control": "no-store"}
    return Response(bundle_of(service, found), headers=headers, media_type="application/zip")


@router.post("/{incident}/notes", status_code=201, response_model=Recorded)
def add_note(request: Request, caller: Operator, incident: Id, body: NoteRequest, act: Act) -> Response:
    """Leave a remark for those who read the incident later."""

    return act.perform(lambda: plan_note(service_of(request), caller, incident, body))


def plan_note(service: Service, caller: Caller, incident: str, body: NoteRequest) -> tuple[list[Planned], str]:
    """404 and 403 as of find_incident."""
    found = find_incident(service, caller, incident)
    return [Planned(kinds.NOTE, {"text": body.text}, found.job, found.id)], f"noted at {found.id}"


def find_incident(service: Service, caller: Caller, incident: str) -> Incident:
    """404 where there is none, 403 where the caller's token does not cover its job."""
    found = service.incidents.whole(incident)
    if found is None:
        raise refuse(404, f'no incident "{incident}": GET /v1/incidents lists all')
    demand_job(caller, found.job)
    return found


def incident_detail(incident: Incident) -> IncidentDetail:
    """An incident as the service shows it."""
    whole = incident_json(incident)
    fields = {name: whole[name] for name in IncidentDetail.model_fields if name in whole}
    return IncidentDetail.model_validate(fields | summary_fields(incident) | {"report": incident_report(incident)})
