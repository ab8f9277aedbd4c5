"""Jobs: what the ledger knows of them, and what their controllers wrote last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from minder.api.access import Caller
from minder.api.fields import JobName, Page
from minder.api.jobs import Job, JobDetail
from minder.clock import format_time
from minder.controller.state import fold_job
from minder.controller.status import read_status
from minder.incidents import kinds
from minder.store.events import EventQuery
from minder.types import LedgerEvent
from serve.access import Viewer, demand_job, sees
from serve.answers import tagged
from serve.problems import refuse
from serve.routes.incidents import Limit
from serve.state import Service, service_of

__all__ = ["JOB_KINDS", "job_detail", "job_events", "job_ranks", "job_status", "jobs_page", "router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
JOB_KINDS = (
    kinds.JOB_REGISTERED,
    kinds.JOB_ENDED,
    kinds.GENERATION_STARTED,
    kinds.FIRST_STEP,
    kinds.BARRED,
    kinds.UNBARRED,
)
Name = Annotated[JobName, Path(max_length=63)]


@router.get("", response_model=Page[Job])
def list_jobs(request: Request, caller: Viewer, limit: Limit = 50, cursor: Annotated[JobName | None, Query()] = None) -> Response:
    """Every job that was ever registered, by name."""
    return tagged(request, jobs_page(service_of(request), caller, limit, cursor))


def jobs_page(service: Service, caller: Caller, limit: int, cursor: str | None = None) -> Page[Job]:
    """Those that the caller may see."""
    grouped = job_events(service)
    rest = sorted(name for name in grouped if sees(caller, name) and (cursor is None or name > cursor))
    opened = _open_incidents(service)
    items = tuple(Job.model_validate(_fields(name, grouped[name], opened)) for name in rest[:limit])
    return Page[Job](items=items, next=rest[limit - 1] if len(rest) > limit else None)


@router.get("/{name}", response_model=JobDetail)
def show_job(request: Request, caller: Viewer, name: Name) -> Response:
    """One job, with its controller's last status where the service was told of its job.toml."""
    return tagged(request, job_detail(service_of(request), caller, name))


def job_detail(service: Service, caller: Caller, name: str) -> JobDetail:
    """404 where there is none, 403 where the caller's token does not cover it."""
    demand_job(caller, name)
    events = job_events(service).get(name)
    if events is None:
        raise refuse(404, f'no job "{name}" in the ledger: GET /v1/jobs lists all')
    status = job_status(service, name)
    now_s = service.clock.now_s()
    age_s = None if status is None else round(max(0.0, now_s - float(status.get("now_s", 0.0))), 1)
    fields = _fields(name, events, _open_incidents(service)) | {"status": status, "status_age_s": age_s}
    return JobDetail.model_validate(fields)


def job_status(service: Service, name: str) -> Mapping[str, Any] | None:
    """What its controller wrote last; None where the service does not see that."""
    path = service.settings.status_files.get(name)
    status = None if path is None else read_status(path)
    return status if status is not None and status.get("job") == name else None


def job_ranks(service: Service, name: str) -> Mapping[int, str]:
    """Rank to machine now."""
    return fold_job(name, job_events(service).get(name, ())).rank_machine


def job_events(service: Service) -> dict[str, list[LedgerEvent]]:
    """What a job's state follows from, by job: of what replaces what was before, the newest alone."""
    grouped: dict[str, list[LedgerEvent]] = {}
    lasting = service.events.select(EventQuery(kinds=(kinds.JOB_REGISTERED, kinds.BARRED, kinds.UNBARRED)))
    newest = service.events.newest_by_job((kinds.GENERATION_STARTED, kinds.FIRST_STEP, kinds.JOB_ENDED))
    for event in sorted([*lasting, *newest], key=lambda event: event.id):
        if event.job is not None:
            grouped.setdefault(event.job, []).append(event)
    return grouped


def _open_incidents(service: Service) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for listed in service.incidents.unfinished():
        found.setdefault(listed.summary.job, []).append(listed.summary.id)
    return found


def _fields(name: str, events: Sequence[LedgerEvent], opened: Mapping[str | None, Sequence[str]]) -> dict[str, object]:
    state = fold_job(name, events)
    registered = [event.time_s for event in events if event.kind == kinds.JOB_REGISTERED]
    return {
        "name": name,
        "phase": state.phase,
        "generation": state.generation,
        "runs": state.run,
        "registered": format_time(registered[-1]) if registered else None,
        "machines": tuple(dict.fromkeys(machine for _, machine in sorted(state.rank_machine.items()))),
        "barred": tuple(sorted(state.barred)),
        "open_incidents": tuple(opened.get(name, ())),
    }
