"""Standby pools, and the models in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minder.act.controller.reporting.status import status_age_s
from minder.record.api.access import Caller
from minder.record.api.fields import JobName, Page
from minder.record.api.standbys import JobModel, Models, Standby
from minder.record.incidents.proofs import ProofState
from serve.access import Viewer, demand_job, sees
from serve.answers import tagged
from serve.job_index import JobPast
from serve.job_status import job_status
from serve.pauses import maintenance_windows
from serve.state import Service, service_of

__all__ = ["router", "standbys_page"]

router = APIRouter(prefix="/v1", tags=["pools and models"])
_OLD_S = 30.0


@router.get("/standbys", response_model=Page[Standby])
def list_standbys(
    request: Request, caller: Viewer, job: Annotated[JobName | None, Query(description="Only of this job.")] = None
) -> Response:
    """The standbys of running jobs. "ready" is what a controller saw lately and probes have proven; where none reports, it is unknown."""
    if job is not None:
        demand_job(caller, job)
    return tagged(request, standbys_page(service_of(request), caller, job))


def standbys_page(service: Service, caller: Caller, job: str | None = None) -> Page[Standby]:
    found: list[Standby] = []
    for name, past in sorted(service.jobs.pasts().items()):
        if sees(caller, name) and job in (None, name):
            found += _pool(service, name, past)
    return Page[Standby](items=tuple(found))


def _pool(service: Service, name: str, past: JobPast) -> Iterator[Standby]:
    state = past.state
    if state.phase in ("finished", "failed"):
        return
    registered = {} if past.registered is None else past.registered.payload
    now_s = service.clock.now_s()
    serviced = {machine for item in maintenance_windows(service) if item.from_s <= now_s for machine in item.machines}
    status = job_status(service, name)
    told_s = None if status is None else float(status.get("now_s", 0.0))
    status = None if status is None or status_age_s(status, now_s) > _OLD_S else status
    waiting = None if status is None else _waiting(status)
    proofs = {str(row.get("name")): row.get("proof") for row in (status or {}).get("machines") or ()}
    for machine in dict.fromkeys([*map(str, registered.get("standbys") or ()), *sorted(waiting or ())]):  # also returned or joined ones
        proof = _proof(proofs.get(machine))
        if machine in state.barred:
            word = "barred"
        elif machine in past.machines:
            word = "in use"
        elif machine in serviced:
            word = "maintenance"
        else:
            word = "unknown" if waiting is None else _word(machine in waiting, proof)
        yield Standby.model_validate({"machine": machine, "job": name, "state": word, "told_s": told_s, **proof})


def _word(waits: bool, proof: Mapping[str, Any]) -> str:
    """Of one that its controller saw lately. Where standbys are tested, none is ready before a probe has proven it."""
    return "not ready" if not waits else "untested" if proof.get("proof") == "unknown" else "ready"


def _proof(found: Any) -> dict[str, Any]:
    """As the controller's status has it, of any version."""
    if not isinstance(found, Mapping) or found.get("state") not in get_args(ProofState):
        return {}
    return {"proof": found["state"], "proof_detail": str(found.get("detail") or ""), "tested_s": found.get("time_s")}


def _waiting(status: Mapping[str, Any] | None) -> set[str]:
    """Those that the controller saw at the barrier."""
    return {str(row.get("name")) for row in (status or {}).get("machines") or () if row.get("role") == "standby"}


@router.get("/models", response_model=Models)
def list_models(request: Request, caller: Viewer) -> Response:
    """The registered detector's champion and challengers, and which detector each job's job.toml names."""
    return tagged(request, registered_models(service_of(request), caller))


def registered_models(service: Service, caller: Caller) -> Models:
    """As far as the caller's jobs go. It may take as long as the registry takes: a minute and a half at most."""
    known = service.models.read()
    jobs = tuple(
        JobModel(job=name, detector=config.detector.uri, shadow=config.detector.shadow)
        for name, config in sorted(service.known.configs().items())
        if sees(caller, name)
    )
    champion = next((item for item in known.versions if item.champion), None)
    challengers = tuple(item for item in known.versions if not item.champion)
    fields = {"registry": known.state, "detail": known.detail, "champion": champion, "challengers": challengers, "jobs": jobs}
    return Models.model_validate(fields)
