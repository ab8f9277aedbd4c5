"""Pauses: evictions and restarts stop for a while, alarms go on."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from minder.model.clock import format_time
from minder.record.api.access import Caller
from minder.record.api.fields import Page
from minder.record.api.incidents import Recorded
from minder.record.api.pauses import EndPauseRequest, Pause, PauseRequest
from minder.record.incidents import kinds
from serve.access import Operator, Viewer, demand_fleet, demand_job, sees
from serve.actions import Act, Planned
from serve.answers import tagged
from serve.pauses import pauses_in_force
from serve.problems import refuse
from serve.state import Service, service_of

__all__ = ["pauses_page", "plan_end_pause", "plan_pause", "router"]

router = APIRouter(prefix="/v1/pauses", tags=["pauses"])


@router.get("", response_model=Page[Pause])
def list_pauses(request: Request, caller: Viewer) -> Response:
    """The pauses that hold now. Those of everything and of racks are shown to everybody."""
    return tagged(request, pauses_page(service_of(request), caller))


def pauses_page(service: Service, caller: Caller) -> Page[Pause]:
    """A job's only where the caller may see the job."""
    return Page[Pause](items=tuple(pause for pause in _holding(service) if pause.scope != "job" or sees(caller, pause.target)))


@router.post("", status_code=201, response_model=Recorded)
def start_pause(request: Request, caller: Operator, body: PauseRequest, act: Act) -> Response:
    """Stop actions, never alarms, until the pause ends by itself. A later pause of the same scope takes the place of the earlier."""
    return act.perform(lambda: plan_pause(service_of(request), caller, body))


def plan_pause(service: Service, caller: Caller, body: PauseRequest) -> tuple[list[Planned], str]:
    """403 where the caller's token does not cover the scope."""
    _demand_scope(caller, body)
    until_s = service.clock.now_s() + body.seconds
    payload = {"scope": body.scope, "target": body.target, "until_s": until_s, "reason": body.reason}
    planned = Planned(kinds.PAUSE, payload, body.target if body.scope == "job" else None)
    return [planned], f"actions are paused for {_called(body)} until {format_time(until_s)}; alarms go on"


@router.post("/end", status_code=201, response_model=Recorded)
def end_pause(request: Request, caller: Operator, body: EndPauseRequest, act: Act) -> Response:
    """Lift a pause before it ends by itself."""
    return act.perform(lambda: plan_end_pause(service_of(request), caller, body))


def plan_end_pause(service: Service, caller: Caller, body: EndPauseRequest) -> tuple[list[Planned], str]:
    """403 where the caller's token does not cover the scope, 409 where no such pause holds."""
    _demand_scope(caller, body)
    held = _holding(service)
    if not any(body.scope == "all" or (item.scope, item.target) == (body.scope, body.target) for item in held):
        raise refuse(409, f"no pause holds for {_called(body)}: GET /v1/pauses lists those that do")
    payload = {"scope": "everything" if body.scope == "all" else body.scope, "target": body.target, "reason": body.reason}
    return [Planned(kinds.UNPAUSE, payload, body.target if body.scope == "job" else None)], f"actions go on for {_called(body)}"


def _demand_scope(caller: Caller, body: PauseRequest | EndPauseRequest) -> None:
    if body.scope == "job":
        demand_job(caller, body.target)
    else:
        demand_fleet(caller, f"a pause of {_called(body)}")


def _called(body: PauseRequest | EndPauseRequest) -> str:
    return "everything" if body.scope == "all" else f"{body.scope} {body.target}"


def _holding(service: Service) -> list[Pause]:
    return [
        Pause(scope=item.scope, target=item.target, until=format_time(item.until_s), reason=item.reason)
        for item in pauses_in_force(service)
    ]
