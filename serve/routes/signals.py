"""Signals that others send. They are evidence about a machine, and take the way that an agent's signals take."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from pydantic import Field, ValidationError

from minder.record.api.fields import JobName, MachineName
from minder.record.api.signals import MOST_SIGNALS, SignalsRequest, SignalsTaken
from serve.access import AnyCaller
from serve.problems import refuse
from serve.signals.foreign import AlertmanagerMessage, GpudComponent, HealthEvents, read_alerts, read_gpud, read_health_events
from serve.signals.intake import demand_reporter, running_machines, take_signals
from serve.state import service_of

__all__ = ["router"]

router = APIRouter(prefix="/v1/signals", tags=["signals"])
Job = Annotated[JobName | None, Query(description="Of the machines; every job that has them if not given.")]


@router.post("", status_code=202)
def report(request: Request, caller: AnyCaller, body: SignalsRequest) -> SignalsTaken:
    """Tell of machines. An agent's or launcher's token speaks for its own machine; one of role source for every machine of its jobs."""
    service = service_of(request)
    demand_reporter(service, caller)
    return take_signals(service, caller, body.signals, running_machines(service, caller), body.job)


@router.post("/alertmanager", status_code=202)
def report_alerts(request: Request, caller: AnyCaller, body: AlertmanagerMessage, job: Job = None) -> SignalsTaken:
    """Alertmanager's webhook. An alert is evidence about the machine that its labels name (machine, node, host, instance ...)."""
    service = service_of(request)
    demand_reporter(service, caller)
    machines = running_machines(service, caller)
    return take_signals(service, caller, read_alerts(body, machines.keys() | _own(caller.machine)), machines, job)


@router.post("/nvsentinel", status_code=202)
def report_health_events(request: Request, caller: AnyCaller, body: Annotated[dict[str, Any], Body()], job: Job = None) -> SignalsTaken:
    """NVSentinel's health events: one, {"events": [...]}, or a CloudEvent around either. An Xid in one is judged by minder's own list."""
    service = service_of(request)
    demand_reporter(service, caller)
    machines = running_machines(service, caller)
    try:
        message = HealthEvents.read(body)
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors()[0]
        where = ".".join(str(part)[:40] for part in first["loc"][:6])
        raise refuse(422, json.dumps(f"body.{where}: {first['msg']}"[:300])[1:-1]) from error
    return take_signals(service, caller, read_health_events(message, machines.keys() | _own(caller.machine)), machines, job)


@router.post("/gpud", status_code=202)
def report_gpud(
    request: Request,
    caller: AnyCaller,
    machine: Annotated[MachineName, Query(description="Where this gpud runs: its documents do not say.")],
    body: Annotated[tuple[GpudComponent, ...], Field(max_length=MOST_SIGNALS)],
    job: Job = None,
) -> SignalsTaken:
    """What gpud answers at /v1/events or /v1/states, as it is."""
    service = service_of(request)
    demand_reporter(service, caller)
    return take_signals(service, caller, read_gpud(body, machine), running_machines(service, caller), job)


def _own(machine: str | None) -> set[str]:
    return set() if machine is None else {machine}
