"""The policy: what is set, and what other settings would have decided about the past."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from minder.act.policy.config import PolicyConfig
from minder.offline.adoption.redecide import DRY_RUN_KINDS, redecide
from minder.record.api.access import Caller
from minder.record.api.fields import JobName
from minder.record.api.policy import DryRun, DryRunRequest, PolicySettings
from minder.record.incidents import kinds
from minder.record.store.events import EventQuery
from serve.access import Viewer, demand_job
from serve.answers import tagged
from serve.job_status import job_status
from serve.problems import refuse
from serve.state import Service, service_of

__all__ = ["policy_settings", "router", "try_policy"]

router = APIRouter(prefix="/v1/policy", tags=["policy"])


@router.get("", response_model=PolicySettings)
def show_policy(
    request: Request,
    caller: Viewer,
    job: Annotated[JobName | None, Query(description="Job whose settings are meant; the defaults if not given.")] = None,
) -> Response:
    """The settings of a job whose job.toml the service knows; the defaults for any other."""
    return tagged(request, policy_settings(service_of(request), caller, job))


def policy_settings(service: Service, caller: Caller, job: str | None) -> PolicySettings:
    """403 where the caller's token does not cover the job."""
    if job is not None:
        demand_job(caller, job)
    source = (
        f"job.toml of {job}"
        if job is not None and service.known.config(job) is not None
        else "defaults: the service knows no job.toml of it"
    )
    found = _settings(service, job)
    settings = dataclasses.asdict(found) | {"ladder": found.ladder.model_dump(mode="json", exclude_none=True)}
    status = None if job is None else job_status(service, job)
    if status is not None and isinstance(status.get("dry_run"), bool):
        settings["dry_run"] = status["dry_run"]  # --act says so, not job.toml
        source += ", and its controller's last word on dry_run"
    elif job is not None:
        del settings["dry_run"]  # it is not known here
    return PolicySettings(job=job, source=source if job is not None else "defaults", settings=settings)


@router.post("/dry-run")
def try_settings(request: Request, caller: Viewer, body: DryRunRequest) -> DryRun:
    """Take the job's past decisions again with other settings. Writes nothing and acts on nothing."""
    return try_policy(service_of(request), caller, body)


def try_policy(service: Service, caller: Caller, body: DryRunRequest) -> DryRun:
    """403 where the caller's token does not cover the job, 404 where there is none; raises ConfigError for settings that do not hold."""
    demand_job(caller, body.job)
    base = dataclasses.asdict(_settings(service, body.job)) | {"dry_run": False}
    config = PolicyConfig.from_mapping(base | dict(body.policy))
    events = service.events.select(EventQuery(kinds=(*DRY_RUN_KINDS,)))
    if not any(event.kind == kinds.JOB_REGISTERED and event.job == body.job for event in events):
        raise refuse(404, f'no job "{body.job}" in the ledger: GET /v1/jobs lists all')
    return redecide(body.job, events, config)


def _settings(service: Service, job: str | None) -> PolicyConfig:
    config = service.known.config(job or "")
    return PolicyConfig() if config is None else config.policy_config(act=False)
