"""Machines that were evicted or barred: what is known of them, what the repair found, and their way back."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from minder.act.recovery.generation_plan import machine_order
from minder.model.clock import format_time
from minder.record.api.access import Caller
from minder.record.api.fields import NAME, JobName, MachineName, Page
from minder.record.api.incidents import Recorded
from minder.record.api.machines import EvictRequest, Machine, MachineDetail, OutcomeRequest, RetestRequest, ReturnRequest
from minder.record.incidents import kinds
from minder.record.incidents.history import find_barrings
from minder.record.incidents.machines import RETEST_PREFIX, MachineRecord, Retest, unfit_because
from minder.record.incidents.orders import order_payload
from minder.record.incidents.retests import PastRetest
from minder.record.store.events import EventQuery
from minder.record.store.tokens import new_id
from serve.access import Operator, Viewer, demand_fleet, demand_job, sees
from serve.actions import Act, Planned
from serve.answers import tagged
from serve.machine_known import jobs_of_machine, probes_of_machine, signals_of_machine
from serve.problems import refuse
from serve.routes.incidents import Limit, find_incident
from serve.state import Service, service_of

__all__ = ["machine_detail", "machines_page", "plan_evict", "plan_outcome", "plan_retest", "plan_return", "router"]

router = APIRouter(prefix="/v1/machines", tags=["machines"])
Name = Annotated[MachineName, Path(pattern=NAME, max_length=255, description="Name of the machine.")]
_MOST_RETESTS = 20
_MOST_INCIDENTS = 100


@router.get("", response_model=Page[Machine])
def list_machines(
    request: Request,
    caller: Viewer,
    barred: Annotated[bool | None, Query(description="Only those that are (or are not) barred now.")] = None,
    limit: Limit = 50,
    cursor: Annotated[MachineName | None, Query(description="`next` of the page before.")] = None,
) -> Response:
    """Every machine that was ever evicted or barred, by name."""
    return tagged(request, machines_page(service_of(request), caller, barred, limit, cursor))


def machines_page(service: Service, caller: Caller, barred: bool | None, limit: int, cursor: str | None = None) -> Page[Machine]:
    """As far as the caller's jobs know of them."""
    records = _records(service, caller)
    names = sorted(name for name, record in records.items() if barred is None or bool(record.barred_in) == barred)
    rest = [name for name in names if cursor is None or name > cursor]
    items = tuple(Machine.model_validate(_fields(records[name])) for name in rest[:limit])
    return Page[Machine](items=items, next=rest[limit - 1] if len(rest) > limit else None)


@router.get("/{name}", response_model=MachineDetail)
def show_machine(request: Request, caller: Viewer, name: Name) -> Response:
    """One machine: where it stands, the jobs that have it, the incidents that name it, its tests. 404 where no job knows it."""
    return tagged(request, machine_detail(service_of(request), caller, name))


def machine_detail(service: Service, caller: Caller, name: str) -> MachineDetail:
    """404 where nothing is known that the caller may see."""
    listed = service.incidents.listed(service.machines.incidents_naming(name))
    own = (item.summary for item in listed if sees(caller, item.span.job))
    named = [item for item in own if name in (*item.machines, *item.evicted)]
    record = _records(service, caller).get(name)
    jobs = jobs_of_machine(service, caller, name)
    if record is None and not named and not jobs:
        raise refuse(404, f'nothing is known of a machine "{name}": no job that you may see has it, and GET /v1/jobs lists those')
    fields = _fields(record or MachineRecord(name))
    retests = tuple(_test_fields(item) for item in reversed(service.machines.retests(caller.jobs, name)[-_MOST_RETESTS:]))
    more = {
        "jobs": tuple(jobs),
        "signals": tuple(signals_of_machine(service, caller, name)),
        "probes": tuple(probes_of_machine(service, caller, name)),
    }
    return MachineDetail.model_validate(fields | more | {"incidents": tuple(named[:_MOST_INCIDENTS]), "retests": retests})


@router.post("/{name}/outcome", status_code=201, response_model=Recorded)
def record_outcome(request: Request, caller: Operator, name: Name, body: OutcomeRequest, act: Act) -> Response:
    """Record what the repair found: was the eviction right?"""

    return act.perform(lambda: plan_outcome(service_of(request), caller, name, body))


def plan_outcome(service: Service, caller: Caller, name: str, body: OutcomeRequest) -> tuple[list[Planned], str]:
    """404, 403 and 422 where the incident is not one of this machine."""
    meant = body.incident
    if meant is None:
        record = _records(service, caller).get(name)
        if record is None or record.incident is None:
            raise refuse(404, f'machine "{name}" was never evicted: name the incident that is meant')
        meant = record.incident
    found = find_incident(service, caller, meant)
    if name not in (*found.machines, *found.evicted):
        raise refuse(422, f"incident {found.id} does not name {name}: it names {', '.join(found.machines) or 'no machine'}")
    payload = {"machine": name, "outcome": body.outcome, "note": body.note}
    return [Planned(kinds.OUTCOME, payload, found.job, found.id)], f"{name}: {body.outcome} (incident {found.id})"


@router.post("/{name}/return", status_code=201, response_model=Recorded)
def return_machine(request: Request, caller: Operator, name: Name, body: ReturnRequest, act: Act) -> Response:
    """Let a barred machine work again."""
    return act.perform(lambda: plan_return(service_of(request), caller, name, body))


def plan_return(service: Service, caller: Caller, name: str, body: ReturnRequest) -> tuple[list[Planned], str]:
    """409 where nothing bars it that the caller may lift."""
    if body.job is not None:
        demand_job(caller, body.job)
    events = service.events.select(EventQuery(kinds=(kinds.BARRED, kinds.UNBARRED)))
    barrings = find_barrings(events, name)
    meant = [event for job, event in barrings.items() if body.job in (None, job) and (job is None or sees(caller, job))]
    if None in barrings:
        demand_fleet(caller, f"the bar of {name}")
        if body.job is not None:
            raise refuse(422, f"{name} is barred from every job: return it without a job")
    if not meant:
        raise refuse(409, f'machine "{name}" is not barred{_from(body.job)}: GET /v1/machines?barred=true lists those that are')
    unfit = unfit_because(_records(service, caller).get(name), time.time())
    if unfit is not None and not body.force:
        raise refuse(409, f"{unfit}: mend and test it again, or say force with the reason why it is fit all the same")
    payload = {"machine": name, "note": body.reason} | ({"forced": unfit} if unfit is not None else {})
    planned = [Planned(kinds.UNBARRED, payload, event.job, event.incident) for event in meant]
    detail = f"{name} may work again{_from(body.job).replace('from', 'in')}"
    return planned, f"{detail}: it waits as a standby as soon as its launcher has started its workers"


@router.post("/{name}/evict", status_code=201, response_model=Recorded)
def evict_machine(request: Request, caller: Operator, name: Name, body: EvictRequest, act: Act) -> Response:
    """Order a machine out of a job. Its controller does it, if budgets, pauses and standbys allow, and unless it is in dry run."""
    return act.perform(lambda: plan_evict(service_of(request), caller, name, body))


def plan_evict(service: Service, caller: Caller, name: str, body: EvictRequest) -> tuple[list[Planned], str]:
    """404 where no such job runs, 409 where the machine runs no rank of it."""
    demand_job(caller, body.job)
    past = service.jobs.pasts().get(body.job)
    if past is None or past.registered is None or past.state.phase in ("finished", "failed"):
        raise refuse(404, f'no job "{body.job}" runs: GET /v1/jobs lists those that the ledger knows')
    machines = machine_order(past.state.rank_machine) or tuple(map(str, past.registered.payload.get("machines") or ()))
    if name not in machines:
        raise refuse(409, f"{name} runs no rank of {body.job}: {', '.join(machines[:8])} do")
    payload = order_payload(name, caller.name, body.reason, service.clock.now_s())
    detail = f"the controller of {body.job} evicts {name} at its next tick, if budgets, pauses and standbys allow it"
    return [Planned(kinds.SIGNAL, payload, body.job)], detail


@router.post("/{name}/retest", status_code=201, response_model=Recorded)
def retest_machine(request: Request, caller: Operator, name: Name, body: RetestRequest, act: Act) -> Response:
    """Have a machine that is out of its job tested by its agent; `retest` of the machine says what came of it."""
    return act.perform(lambda: plan_retest(service_of(request), caller, name, body))


def plan_retest(service: Service, caller: Caller, name: str, body: RetestRequest) -> tuple[list[Planned], str]:
    """404 where nothing is known of the machine, 409 while it is tested, 422 where no job is named."""
    record = _records(service, caller).get(name)
    job = body.job or (_known_job(record, caller) if record is not None else None)
    if record is None and body.job is None:
        raise refuse(404, f'nothing is known of a machine "{name}": name the job whose controller can reach it')
    if job is None:
        raise refuse(422, f"{name} is barred from no single job: name the job whose controller can reach it")
    demand_job(caller, job)
    if record is not None and record.retest is not None and record.retest.state in ("asked", "running"):
        raise refuse(409, f"{name} is being tested already: {record.retest.operation_id}")
    operation_id = f"{RETEST_PREFIX}{new_id()}"
    planned = Planned(kinds.RETEST_ASKED, {"machine": name, "reason": body.reason}, job, None, operation_id)
    return [planned], f"{operation_id}: the controller of {job} has {name} tested"


def _known_job(record: MachineRecord, caller: Caller) -> str | None:
    """The job that bars it, else the one that did last."""
    barred = (job for job in record.barred_in if job != "every job" and sees(caller, job))
    return next(barred, record.job)


def _from(job: JobName | None) -> str:
    return f" from job {job}" if job else ""


def _records(service: Service, caller: Caller) -> dict[str, MachineRecord]:
    """As far as the caller's jobs know of them."""
    return service.machines.records(caller.jobs)


def _fields(record: MachineRecord) -> dict[str, object]:
    return {
        "name": record.machine,
        "barred_in": record.barred_in,
        "evictions": record.evictions,
        "last_eviction": None if record.last_eviction_s is None else format_time(record.last_eviction_s),
        "incident": record.incident,
        "outcome": record.outcome,
        "retest": None if record.retest is None else _retest_fields(record.retest),
    }


def _retest_fields(found: Retest) -> dict[str, str]:
    return {"operation": found.operation_id, "time": format_time(found.time_s), "state": found.state, "detail": found.detail}


def _test_fields(item: PastRetest) -> dict[str, object]:
    fields: dict[str, object] = {
        "operation": item.operation_id,
        "state": item.state,
        "job": item.job,
        "by": item.by,
        "reason": item.reason,
        "detail": item.detail,
    }
    times = {"asked": item.asked_s, "begun": item.begun_s, "ended": item.ended_s}
    return fields | {name: None if time_s is None else format_time(time_s) for name, time_s in times.items()}
