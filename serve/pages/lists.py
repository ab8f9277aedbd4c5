"""Lists: incidents, machines, the audit trail."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, HTTPException, Path, Query, Request
from starlette.responses import RedirectResponse, Response

from minder.model.history import LedgerEvent
from minder.record.api.fields import NAME, JobName, MachineName
from minder.record.api.machines import OutcomeRequest, RetestRequest, ReturnRequest
from minder.record.incidents import kinds
from minder.record.incidents.timeline import describe
from minder.record.store.events import EventQuery
from serve.access import sees
from serve.answers import cursor_id
from serve.machine_known import pairs_of_machine
from serve.pages.forms import body_of, carry_out, did
from serve.pages.render import fragment, show
from serve.pages.session import Seen, Sent
from serve.problems import refuse
from serve.routes.incidents import Cursor, Wanted, incidents_page
from serve.routes.jobs import jobs_page
from serve.routes.machine_telemetry import WindowWanted, seen_of
from serve.routes.machines import machine_detail, machines_page, plan_outcome, plan_retest, plan_return
from serve.state import Service, service_of
from serve.telemetry.window import MachineWindow

__all__ = ["router"]

router = APIRouter()
Name = Annotated[MachineName, Path(pattern=NAME, max_length=255)]
_ROWS = 50
# What people and their tokens did (of signals, operators' orders), notes and endings; the controller's other events are on the incidents'
# pages.
_AUDIT = (kinds.PAUSE, kinds.UNPAUSE, kinds.OUTCOME, kinds.NOTE, kinds.UNBARRED, kinds.CLOSED, kinds.TOKEN, kinds.APPROVAL_SETTLED,
          kinds.SIGNED_IN, kinds.JOB_WATCHED, kinds.JOB_UNWATCHED, kinds.MAINTENANCE, kinds.MAINTENANCE_ENDED, kinds.RETEST_ASKED,
          kinds.RULE_RESTORED, kinds.SIGNAL)  # fmt: skip
_EVERYTHING = tuple(sorted({str(getattr(kinds, name)) for name in kinds.__all__} - {kinds.EVIDENCE}))


@router.get("/incidents")
def incidents(
    request: Request,
    visitor: Seen,
    job: Annotated[str, Query(max_length=63)] = "",
    state: Literal["", "open", "acting", "recovering", "closed"] = "",
    since: Annotated[str, Query(max_length=40)] = "",
    cursor: Cursor = None,
) -> Response:
    """Newest first."""
    service, wanted = service_of(request), Wanted(job or None, state or None, since or None)
    page = incidents_page(service, visitor.caller, wanted, _ROWS, cursor)
    jobs = [item.name for item in jobs_page(service, visitor.caller, 200).items]
    asked = {"job": job, "state": state, "since": since}
    return show(request, visitor, "incidents.html", page=page, jobs=jobs, asked=asked, cursor=cursor)


@router.get("/machines")
def machines(
    request: Request,
    visitor: Seen,
    barred: Literal["", "true", "false"] = "",
    name: Annotated[str, Query(max_length=255)] = "",
    cursor: Annotated[str | None, Query(pattern=NAME, max_length=255)] = None,
) -> Response:
    """Those that were ever evicted or barred, by name. A whole name leads to the machine's page."""
    service = service_of(request)
    if name:
        return RedirectResponse(f"/machines/{quote(name, safe='')}", 303, {"Cache-Control": "no-store"})
    page = machines_page(service, visitor.caller, None if barred == "" else barred == "true", _ROWS, cursor)
    return show(request, visitor, "machines.html", page=page, barred=barred, cursor=cursor, said=did(request, visitor))


@router.get("/machines/{name}")
def machine(
    request: Request,
    visitor: Seen,
    name: Name,
    job: Annotated[str, Query(max_length=63)] = "",
    minutes: Annotated[float, Query(gt=0, le=1440)] = 60.0,
    begin: Annotated[str, Query(alias="from", max_length=40)] = "",
    end: Annotated[str, Query(alias="to", max_length=40)] = "",
) -> Response:
    """job, minutes, from, to: the window of its telemetry, which comes when the page is there."""
    found = machine_detail(service_of(request), visitor.caller, name)
    asked = {"job": job, "minutes": f"{minutes:g}", "from": begin, "to": end}
    query = urlencode({key: value for key, value in asked.items() if value})
    evictions = [item for item in found.incidents if name in item.evicted]
    pair_run = pairs_of_machine(service_of(request), visitor.caller, name)
    values: dict[str, Any] = {"machine": found, "asked": asked, "query": query, "evictions": evictions, "pair_run": pair_run}
    return show(request, visitor, "machine.html", said=did(request, visitor), **values)


@router.get("/machines/{name}/window")
def machine_window(request: Request, visitor: Seen, name: Name, wanted: Annotated[WindowWanted, Depends()]) -> Response:
    """The part of a machine's page that takes a while: its telemetry in a window, drawn."""
    service = service_of(request)
    try:
        job, span, seen = seen_of(service, visitor.caller, name, wanted)
    except HTTPException as error:  # a part that is refused would leave the page waiting
        job, span, seen = wanted.job or "", None, MachineWindow("none", str(error.detail))
    return fragment(request, visitor, "parts/machine_window.html", name=name, job=job, span=span, seen=seen)


@router.post("/machines/{name}/return")
def give_back(request: Request, sent: Sent, name: Name) -> Response:
    body = body_of(ReturnRequest, {"reason": sent.fields.get("reason"), "job": sent.fields.get("job")})
    return carry_out(request, sent, lambda: plan_return(service_of(request), sent.visitor.caller, name, body))


@router.post("/machines/{name}/retest")
def have_tested(request: Request, sent: Sent, name: Name) -> Response:
    body = body_of(RetestRequest, {"reason": sent.fields.get("reason"), "job": sent.fields.get("job")})
    return carry_out(request, sent, lambda: plan_retest(service_of(request), sent.visitor.caller, name, body))


@router.post("/machines/{name}/outcome")
def tell_outcome(request: Request, sent: Sent, name: Name) -> Response:
    body = body_of(OutcomeRequest, {key: sent.fields.get(key) for key in ("outcome", "note", "incident")})
    return carry_out(request, sent, lambda: plan_outcome(service_of(request), sent.visitor.caller, name, body))


@router.get("/audit")
def audit(
    request: Request,
    visitor: Seen,
    kind: Annotated[str, Query(max_length=40)] = "",
    job: Annotated[str, Query(max_length=63)] = "",
    cursor: Cursor = None,
) -> Response:
    """Who did what, newest first."""
    if kind not in ("", "all", *_EVERYTHING):
        raise refuse(422, f"there are no events of kind {kind[:40]}: choose one of the list")
    names = _AUDIT if kind == "" else _EVERYTHING if kind == "all" else (kind,)
    found = _newest(service_of(request), visitor, names, job or None, cursor_id(cursor))
    rows = [(event, describe(event)) for event in found[:_ROWS]]
    following = str(rows[-1][0].id) if len(found) > _ROWS else None
    values: dict[str, Any] = {"rows": rows, "next": following, "asked": {"kind": kind, "job": job}, "kinds": _EVERYTHING, "cursor": cursor}
    return show(request, visitor, "audit.html", **values)


def _newest(service: Service, visitor: Seen, names: tuple[str, ...], job: JobName | None, before: int | None) -> list[LedgerEvent]:
    """At most one row more than a page has."""
    kept: list[LedgerEvent] = []
    most = _ROWS + 1 if visitor.caller.jobs is None else 4 * _ROWS
    while len(kept) <= _ROWS:
        query = EventQuery(
            kinds=names, job=job, before_id=before, newest_first=True, limit=most, orders_only=names == _AUDIT, without_ranks=True
        )
        found = service.events.select(query)
        kept += [event for event in found if sees(visitor.caller, event.job)]
        if len(found) < most:
            break
        before = found[-1].id
    return kept[: _ROWS + 1]
