"""Jobs: what the ledger knows of them, what their controllers wrote last, and which of them this service is to watch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from minder.act.controller.lease import is_led
from minder.act.controller.reporting.status import status_age_s
from minder.model.clock import format_time
from minder.model.errors import BadInputError
from minder.record.api.access import Caller
from minder.record.api.fields import JobName, Page, Text
from minder.record.api.incidents import Recorded
from minder.record.api.jobs import Job, JobDetail, RestartRequest, StandbyRequest
from minder.record.incidents import kinds
from minder.record.incidents.joins import JOIN_KINDS, Join, check_join, join_payload, new_join
from minder.record.incidents.orders import find_restart_order
from minder.record.store.events import EventQuery
from serve.access import Admin, Operator, Viewer, demand_job, sees
from serve.actions import Act, Planned
from serve.answers import tagged
from serve.heard import HEARD_S
from serve.job_index import JobPast
from serve.job_status import job_status
from serve.problems import refuse
from serve.routes.incidents import Limit
from serve.state import Service, service_of
from serve.watching.allowed import read_document
from serve.watching.register import JOB_BODY, plan_end, plan_register
from serve.watching.settings import host_in

__all__ = ["job_detail", "jobs_page", "plan_restart", "plan_standby", "router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Name = Annotated[JobName, Path(max_length=63, description="Name of the job.")]
Reason = Annotated[Text, Query(description="Why; it stands in the audit trail.")]


@router.get("", response_model=Page[Job])
def list_jobs(
    request: Request,
    caller: Viewer,
    limit: Limit = 50,
    cursor: Annotated[JobName | None, Query(description="`next` of the page before.")] = None,
) -> Response:
    """Every job that was ever registered, by name."""
    return tagged(request, jobs_page(service_of(request), caller, limit, cursor))


def jobs_page(service: Service, caller: Caller, limit: int, cursor: str | None = None) -> Page[Job]:
    """Those that the caller may see."""
    pasts = service.jobs.pasts()
    rest = sorted(name for name in pasts if sees(caller, name) and (cursor is None or name > cursor))
    opened = _open_incidents(service)
    items = tuple(Job.model_validate(_fields(service, name, pasts[name], opened)) for name in rest[:limit])
    return Page[Job](items=items, next=rest[limit - 1] if len(rest) > limit else None)


@router.get("/{name}", response_model=JobDetail)
def show_job(request: Request, caller: Viewer, name: Name) -> Response:
    """One job, with its controller's last status where the service knows its job.toml."""
    return tagged(request, job_detail(service_of(request), caller, name))


@router.post("", status_code=201, response_model=Recorded, openapi_extra={"requestBody": JOB_BODY})
async def register_job(request: Request, caller: Admin, reason: Reason, act: Act) -> Response:
    """Have this service watch a job. The body is the content of its job.toml, as JSON or TOML.

    It is watched only, and in dry run unless the service's own settings ([jobs]) say otherwise; so do they of whatever is of this
    service's machine: token files, certificates, folders. 422 says which key does not hold, 409 that the name is taken.
    """
    service, body = service_of(request), await request.body()

    def perform() -> Response:
        with service.registering:
            return act.perform(lambda: plan_register(service, caller, read_document(body, request.headers.get("content-type", "")), reason))

    return await asyncio.to_thread(perform)


@router.delete("/{name}", status_code=201, response_model=Recorded)
def end_job(request: Request, caller: Admin, name: Name, reason: Reason, act: Act) -> Response:
    """Watch a registered job no longer. The job is not touched; its incidents and events stay."""
    return act.perform(lambda: plan_end(service_of(request), caller, name, reason))


@router.post("/{name}/restart", status_code=201, response_model=Recorded)
def restart_job(request: Request, caller: Operator, name: Name, body: RestartRequest, act: Act) -> Response:
    """Have a job started again in place. Its controller does it, if restarts are left, nothing is paused, and unless it is in dry run."""
    return act.perform(lambda: plan_restart(service_of(request), caller, name, body))


@router.post("/{name}/standbys", status_code=201, response_model=Recorded)
def add_standby(request: Request, caller: Operator, name: Name, body: StandbyRequest, act: Act) -> Response:
    """Give a running job one more standby. Its controller takes the machine in once agent and launcher answer with the job's tokens."""
    return act.perform(lambda: plan_standby(service_of(request), caller, name, body))


def plan_standby(service: Service, caller: Caller, name: str, body: StandbyRequest) -> tuple[list[Planned], str]:
    """403 for a host that the service's settings do not allow: the controller would send the job's tokens there. 409 where no such job
    runs, or the machine cannot join it."""
    demand_job(caller, name)
    for what, url in (("agent", body.agent), ("launcher", body.launcher)):
        if not host_in(service.settings.file.standby_hosts, _host(what, url)):
            raise refuse(403, f"{what}: {_host(what, url)} is none of the hosts in standby_hosts of this service's settings: add it there")
    wanted = Join("", body.machine, body.agent.rstrip("/"), body.launcher.rstrip("/"), body.rack, body.switch, body.block)
    try:
        check_join(service.events.select(EventQuery(job=name, kinds=JOIN_KINDS)), name, wanted)
    except BadInputError as error:
        raise refuse(409, str(error)) from error
    detail = f"{body.machine} is to join {name} as a standby: its controller takes it in once agent and launcher answer"
    payload = join_payload(wanted) | {"reason": body.reason}
    return [Planned(kinds.STANDBY_ADDED, payload, name, None, operation_id := new_join())], f"{operation_id}: {detail}"


def _host(what: str, url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.hostname and parts.port != 0
    except ValueError:
        good = None
    if not good:
        raise refuse(422, f"{what} is no address: give one like http://10.0.0.104:9401")
    return parts.hostname or ""


def plan_restart(service: Service, caller: Caller, name: str, body: RestartRequest) -> tuple[list[Planned], str]:
    """404 where no such job runs, 409 where it is ordered already, or where no controller of it is heard."""
    demand_job(caller, name)
    past = service.jobs.pasts().get(name)
    if past is None or (past.watched is None and (past.registered is None or past.state.phase in ("finished", "failed"))):
        raise refuse(404, f'no job "{name}" runs: GET /v1/jobs lists those that the ledger knows')
    now_s = service.clock.now_s()
    query = EventQuery(job=name, kinds=(kinds.RESTART_ASKED, kinds.GENERATION_STARTED))
    earlier = find_restart_order(service.events.select(query), now_s)
    if earlier is not None:
        raise refuse(409, f"{earlier.payload.get('by')} ordered it {now_s - earlier.time_s:.0f} s ago: its controller is at it")
    status = job_status(service, name)
    fresh = status is not None and status_age_s(status, now_s) < HEARD_S
    if not fresh and not is_led(service.settings.ledger, name):
        raise refuse(409, f"no controller of {name} is heard: start it, then ask again")
    detail = f"the controller of {name} starts it again in place at its next tick, if restarts, pauses and --act allow it"
    return [Planned(kinds.RESTART_ASKED, {"reason": body.reason}, name)], detail


def job_detail(service: Service, caller: Caller, name: str) -> JobDetail:
    """404 where there is none, 403 where the caller's token does not cover it."""
    demand_job(caller, name)
    past = service.jobs.pasts().get(name)
    if past is None:
        raise refuse(404, f'no job "{name}" in the ledger: GET /v1/jobs lists all')
    status = job_status(service, name)
    now_s = service.clock.now_s()
    age_s = None if status is None or status.get("now_s") is None else round(status_age_s(status, now_s), 1)
    fields = _fields(service, name, past, _open_incidents(service)) | {"status": status, "status_age_s": age_s}
    return JobDetail.model_validate(fields)


def _open_incidents(service: Service) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for listed in service.incidents.unfinished():
        found.setdefault(listed.summary.job, []).append(listed.summary.id)
    return found


def _fields(service: Service, name: str, past: JobPast, opened: Mapping[str | None, Sequence[str]]) -> dict[str, object]:
    state, watched = past.state, past.watched is not None
    phase = _watched_phase(service, name) if watched else state.phase
    shape = service.shapes.of(name, past, service.known.config(name)) if watched else None
    machines = past.machines or (tuple(shape.ranks) if shape is not None else ())
    return {
        "name": name,
        "phase": phase,
        "generation": state.generation,
        "runs": state.run,
        "registered": None if past.registered is None else format_time(past.registered.time_s),
        "machines": machines,
        "barred": tuple(sorted(state.barred)),
        "open_incidents": tuple(opened.get(name, ())),
        "watched": watched,
    }


def _watched_phase(service: Service, name: str) -> str:
    """The ledger does not say how a job stands that is only watched: its watcher's status does."""
    phase = (job_status(service, name) or {}).get("phase")
    return str(phase) if phase in ("running", "recovering") else "starting"
