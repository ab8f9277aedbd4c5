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
from minder.controller.status import read_status
from serve.access import Viewer, demand_job, sees
from serve.answers import tagged
from serve.job_index import JobPast
from serve.problems import refuse
from serve.routes.incidents import Limit
from serve.state import Service, service_of

__all__ = ["job_detail", "job_ranks", "job_status", "jobs_page", "router"]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
Name = Annotated[JobName, Path(max_length=63)]


@router.get("", response_model=Page[Job])
def list_jobs(request: Request, caller: Viewer, limit: Limit = 50, cursor: Annotated[JobName | None, Query()] = None) -> Response:
    """Every job that was ever registered, by name."""
    return tagged(request, jobs_page(service_of(request), caller, limit, cursor))


def jobs_page(service: Service, caller: Caller, limit: int, cursor: str | None = None) -> Page[Job]:
    """Those that the caller may see."""
    pasts = service.jobs.pasts()
    rest = sorted(name for name in pasts if sees(caller, name) and (cursor is None or name > cursor))
    opened = _open_incidents(service)
    items = tuple(Job.model_validate(_fields(name, pasts[name], opened)) for name in rest[:limit])
    return Page[Job](items=items, next=rest[limit - 1] if len(rest) > limit else None)


@router.get("/{name}", response_model=JobDetail)
def show_job(request: Request, caller: Viewer, name: Name) -> Response:
    """One job, with its controller's last status where the service was told of its job.toml."""
    return tagged(request, job_detail(service_of(request), caller, name))


def job_detail(service: Service, caller: Caller, name: str) -> JobDetail:
    """404 where there is none, 403 where the caller's token does not cover it."""
    demand_job(caller, name)
    past = service.jobs.pasts().get(name)
    if past is None:
        raise refuse(404, f'no job "{name}" in the ledger: GET /v1/jobs lists all')
    status = job_status(service, name)
    now_s = service.clock.now_s()
    age_s = None if status is None else round(max(0.0, now_s - float(status.get("now_s", 0.0))), 1)
    fields = _fields(name, past, _open_incidents(service)) | {"status": status, "status_age_s": age_s}
    return JobDetail.model_validate(fields)


def job_status(service: Service, name: str) -> Mapping[str, Any] | None:
    """What its controller wrote last; None where the service does not see that."""
    path = service.settings.status_files.get(name)
    status = None if path is None else read_status(path)
    return status if status is not None and status.get("job") == name else None


def job_ranks(service: Service, name: str) -> Mapping[int, str]:
    """Rank to machine now."""
    past = service.jobs.pasts().get(name)
    return {} if past is None else past.state.rank_machine


def _open_incidents(service: Service) -> dict[str | None, list[str]]:
    found: dict[str | None, list[str]] = {}
    for listed in service.incidents.unfinished():
        found.setdefault(listed.summary.job, []).append(listed.summary.id)
    return found


def _fields(name: str, past: JobPast, opened: Mapping[str | None, Sequence[str]]) -> dict[str, object]:
    state = past.state
    return {
        "name": name,
        "phase": state.phase,
        "generation": state.generation,
        "runs": state.run,
        "registered": None if past.registered is None else format_time(past.registered.time_s),
        "machines": past.machines,
        "barred": tuple(sorted(state.barred)),
        "open_incidents": tuple(opened.get(name, ())),
    }
