"""Pauses, standbys, the policy with its dry run on the past, and models."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minder.model.errors import BadInputError
from minder.model.history import LedgerEvent
from minder.record.api.pauses import EndPauseRequest, PauseRequest
from minder.record.api.policy import DryRun, DryRunRequest
from minder.record.api.standbys import Standby
from minder.record.incidents import kinds
from minder.record.incidents.spans import parse_span
from minder.record.store.events import EventQuery
from serve.access import sees
from serve.job_status import job_status
from serve.pages.forms import body_of, carry_out, did
from serve.pages.render import fragment, show
from serve.pages.session import Seen, Sent, Visitor
from serve.problems import refuse
from serve.routes.jobs import jobs_page
from serve.routes.maintenance import maintenance_page
from serve.routes.pauses import pauses_page, plan_end_pause, plan_pause
from serve.routes.policy import policy_settings, try_policy
from serve.routes.standbys import registered_models, standbys_page
from serve.state import Service, service_of

__all__ = ["Pool", "router"]

router = APIRouter()
_MOST_JOBS = 200
_OVER = ("finished", "failed")


@router.get("/pauses")
def pauses(request: Request, visitor: Seen) -> Response:
    service = service_of(request)
    jobs = [item.name for item in jobs_page(service, visitor.caller, _MOST_JOBS).items]
    held, windows = pauses_page(service, visitor.caller).items, maintenance_page(service, visitor.caller).items
    return show(request, visitor, "pauses.html", held=held, windows=windows, jobs=jobs, said=did(request, visitor))


@router.post("/pauses")
def pause(request: Request, sent: Sent) -> Response:
    fields = {name: sent.fields.get(name) for name in ("scope", "reason")}
    try:
        fields["seconds"] = parse_span(sent.fields.get("for", ""), "for")  # type: ignore[assignment]
    except BadInputError as error:
        raise refuse(422, str(error)) from None
    body = body_of(PauseRequest, fields | {"target": _target(sent.fields)})
    return carry_out(request, sent, lambda: plan_pause(service_of(request), sent.visitor.caller, body))


@router.post("/pauses/end")
def end_pause(request: Request, sent: Sent) -> Response:
    body = body_of(
        EndPauseRequest, {"scope": sent.fields.get("scope"), "reason": sent.fields.get("reason"), "target": _target(sent.fields)}
    )
    return carry_out(request, sent, lambda: plan_end_pause(service_of(request), sent.visitor.caller, body))


def _target(fields: dict[str, str]) -> str | None:
    return None if fields.get("scope") == "all" else fields.get("target")


@dataclass(frozen=True, slots=True)
class Pool:
    """A running job's standbys by their state (minder.record.api.standbys). heard_s: when its controller last wrote; None: unseen. tested:
    those whose probes are known."""

    job: str
    machines: dict[str, tuple[str, ...]]
    heard_s: float | None
    tested: tuple[Standby, ...] = ()


@router.get("/standbys")
def standbys(request: Request, visitor: Seen) -> Response:
    """Of a job that is over, no machine is a standby any more."""
    service = service_of(request)
    found = [_pool(service, visitor, item.name) for item in jobs_page(service, visitor.caller, _MOST_JOBS).items if item.phase not in _OVER]
    return show(request, visitor, "standbys.html", pools=found)


def _pool(service: Service, visitor: Visitor, job: str) -> Pool:
    machines: dict[str, tuple[str, ...]] = {}
    items = standbys_page(service, visitor.caller, job).items
    for item in items:
        machines[item.state] = (*machines.get(item.state, ()), item.machine)
    status = job_status(service, job)
    tested = tuple(item for item in items if item.proof is not None and item.state in ("ready", "untested", "not ready"))
    return Pool(job, machines, None if status is None else float(status.get("now_s") or 0.0), tested)


@router.get("/policy")
def policy(request: Request, visitor: Seen, job: Annotated[str, Query(max_length=63)] = "") -> Response:
    service = service_of(request)
    jobs = [item.name for item in jobs_page(service, visitor.caller, _MOST_JOBS).items]
    settings = policy_settings(service, visitor.caller, job or None)
    return show(request, visitor, "policy.html", settings=settings, jobs=jobs, job=job, tried=None, typed={})


@router.post("/policy")
def dry_run(request: Request, sent: Sent) -> Response:
    """Other settings on the job's past; nothing is written, nothing is acted on."""
    service, caller, job = service_of(request), sent.visitor.caller, sent.fields.get("job", "")
    typed = {name.removeprefix("policy."): value for name, value in sent.fields.items() if name.startswith("policy.") and value.strip()}
    body = body_of(DryRunRequest, {"job": job, "policy": {name: _value(value) for name, value in typed.items()}})
    tried: DryRun = try_policy(service, caller, body)
    jobs = [item.name for item in jobs_page(service, caller, _MOST_JOBS).items]
    values: dict[str, Any] = {"settings": policy_settings(service, caller, job), "jobs": jobs, "job": job, "tried": tried, "typed": typed}
    return show(request, sent.visitor, "policy.html", **values)


def _value(text: str) -> Any:
    """A number, true, false or a list as JSON writes them; anything else is a word."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@router.get("/models")
def models(request: Request, visitor: Seen, versions: bool = False) -> Response:
    """Which detector reads each job's telemetry, which looks on, and what these said of themselves. versions: and what is registered,
    which the page asks for by itself where scripts run: the registry may take its time."""
    service = service_of(request)
    named = sorted((name, config.detector) for name, config in service.known.configs().items() if sees(visitor.caller, name))
    query = EventQuery(kinds=(kinds.SHADOW, kinds.DRIFT), newest_first=True, limit=200)
    events: list[LedgerEvent] = [event for event in service.events.select(query) if sees(visitor.caller, event.job)]
    newest = {(event.job, event.kind): event for event in reversed(events)}
    known = registered_models(service, visitor.caller) if versions else None
    return show(request, visitor, "models.html", named=named, events=events[:40], newest=newest, known=known)


@router.get("/models/versions")
def versions(request: Request, visitor: Seen) -> Response:
    """What the registry holds; it is asked at most once a minute."""
    return fragment(request, visitor, "parts/versions.html", known=registered_models(service_of(request), visitor.caller))
