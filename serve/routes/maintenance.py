"""Maintenance windows: planned, like pauses of machines, racks or jobs. Actions stop, alarms never do."""

from __future__ import annotations

import secrets
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from minder.model.clock import format_time, parse_time
from minder.record.api.access import Caller
from minder.record.api.fields import NAME, Page
from minder.record.api.incidents import Recorded
from minder.record.api.maintenance import EndMaintenanceRequest, MaintenanceRequest, MaintenanceWindow
from minder.record.incidents import kinds
from serve.access import Operator, Viewer, demand_fleet, demand_job, sees
from serve.actions import Act, Planned
from serve.answers import tagged
from serve.pauses import maintenance_windows
from serve.problems import refuse
from serve.state import Service, service_of

__all__ = ["maintenance_page", "router"]

router = APIRouter(prefix="/v1/maintenance", tags=["maintenance"])
_FARTHEST_S = 366 * 86_400.0


@router.get("", response_model=Page[MaintenanceWindow])
def list_maintenance(request: Request, caller: Viewer) -> Response:
    """Windows that hold now or are still to come, soonest first. A job's only where the caller may see the job."""
    return tagged(request, maintenance_page(service_of(request), caller))


def maintenance_page(service: Service, caller: Caller) -> Page[MaintenanceWindow]:
    now_s = service.clock.now_s()
    shown = [item for item in maintenance_windows(service) if item.machines or item.racks or any(sees(caller, job) for job in item.jobs)]
    return Page[MaintenanceWindow](
        items=tuple(
            MaintenanceWindow(
                id=item.id,
                begin=format_time(item.from_s),
                until=format_time(item.until_s),
                active=item.from_s <= now_s,
                machines=item.machines,
                racks=item.racks,
                jobs=tuple(job for job in item.jobs if sees(caller, job)),
                reason=item.reason,
                by=item.by,
            )
            for item in shown
        )
    )


@router.post("", status_code=201, response_model=Recorded)
def add_maintenance(request: Request, caller: Operator, body: MaintenanceRequest, act: Act) -> Response:
    """Plan a window. Machines and racks concern every job on them: that needs a token for every job."""
    return act.perform(lambda: _plan_add(service_of(request), caller, body))


def _plan_add(service: Service, caller: Caller, body: MaintenanceRequest) -> tuple[list[Planned], str]:
    _demand_scope(caller, bool(body.machines or body.racks), body.jobs)
    now_s = service.clock.now_s()
    try:
        from_s = now_s if body.begin is None else parse_time(body.begin)
    except (ValueError, OverflowError):
        raise refuse(422, "begin is no time: give ISO 8601, like 2026-03-02T06:12:31Z") from None
    if from_s + body.seconds <= now_s or from_s > now_s + _FARTHEST_S:
        raise refuse(422, "the window is over already, or more than a year away: mend begin or seconds")
    payload = {
        "id": f"window-{secrets.token_hex(4)}",
        "from_s": from_s,
        "until_s": from_s + body.seconds,
        "machines": list(body.machines),
        "racks": list(body.racks),
        "jobs": list(body.jobs),
        "reason": body.reason,
    }
    planned = Planned(kinds.MAINTENANCE, payload, body.jobs[0] if len(body.jobs) == 1 and not (body.machines or body.racks) else None)
    return [planned], f"{payload['id']}: from {format_time(from_s)} until {format_time(from_s + body.seconds)}; alarms go on"


@router.post("/{window}/end", status_code=201, response_model=Recorded)
def end_maintenance(
    request: Request,
    caller: Operator,
    window: Annotated[str, Path(pattern=NAME, max_length=63, description="Id of the window.")],
    body: EndMaintenanceRequest,
    act: Act,
) -> Response:
    """End a window before its time, or take back one that is still to come."""

    def plan() -> tuple[list[Planned], str]:
        found = next((item for item in maintenance_windows(service_of(request)) if item.id == window), None)
        if found is None:
            raise refuse(404, f'no window "{window}" holds or is planned: GET /v1/maintenance lists all')
        _demand_scope(caller, bool(found.machines or found.racks), found.jobs)
        return [Planned(kinds.MAINTENANCE_ENDED, {"id": window, "reason": body.reason})], f"{window} is ended: minder may act again"

    return act.perform(plan)


def _demand_scope(caller: Caller, hardware: bool, jobs: tuple[str, ...]) -> None:
    if hardware:
        demand_fleet(caller, "maintenance of machines or racks")
    for job in jobs:
        demand_job(caller, job)
