"""A job is registered, or not watched any more: what is checked, and which events say so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minder.config import JobConfig
from minder.record.api.access import Caller
from minder.record.incidents import kinds
from minder.record.incidents.endings import closing_payload
from serve.access import demand_job
from serve.actions import Planned
from serve.problems import refuse
from serve.state import Service
from serve.watching.allowed import allow_config

__all__ = ["JOB_BODY", "plan_end", "plan_register"]

# FastAPI knows no TOML: the body is described here.
_JOB = {"name": "llm-70b", "machines": [{"name": "node-1", "agent": "http://127.0.0.1:9401"}]}
JOB_BODY: dict[str, Any] = {
    "required": True,
    "description": "The content of a job.toml.",
    "content": {
        "application/json": {"schema": {"$ref": "#/components/schemas/JobConfig"}, "example": _JOB},
        "application/toml": {
            "schema": {"type": "string"},
            "example": 'name = "llm-70b"\n[[machines]]\nname = "node-1"\nagent = "http://127.0.0.1:9401"\n',
        },
    },
}


def plan_register(service: Service, caller: Caller, document: Mapping[str, Any], reason: str) -> tuple[list[Planned], str]:
    """403 where the service registers no jobs or the token does not cover this one, 409 where the name is taken or there are enough.
    Raises BadInputError for what does not hold."""
    settings = service.settings.file.jobs
    if settings is None:
        raise refuse(403, "this service registers no jobs: give it a [jobs] table in its service.toml (minder serve --settings)")
    config = allow_config(document, settings)
    demand_job(caller, config.name)
    registered = service.known.registered()
    if config.name in registered:
        raise refuse(409, f'a job "{config.name}" is watched already: DELETE /v1/jobs/{config.name} ends that')
    past = service.jobs.pasts().get(config.name)
    if config.name in service.settings.jobs or (past is not None and past.state.phase not in ("finished", "failed")):
        raise refuse(409, f'the name "{config.name}" is taken by a job with a controller of its own: choose another')
    if len(registered) >= settings.most:
        raise refuse(409, f"{len(registered)} jobs are watched already, as many as [jobs] allows: end one, or raise jobs.most")
    content = config.model_dump(mode="json", exclude_defaults=True)
    watched = Planned(kinds.JOB_WATCHED, {"config": content, "reason": reason}, config.name)
    mode = "evicting for real" if settings.act and config.engine is not None else "in dry run"
    return [Planned(kinds.JOB_REGISTERED, _run(config), config.name), watched], f"{config.name} is watched from now on, {mode}"


def plan_end(service: Service, caller: Caller, name: str, reason: str) -> tuple[list[Planned], str]:
    """403 where the caller's token does not cover the job, 404 where it is not registered."""
    demand_job(caller, name)
    if name not in service.known.registered():
        raise refuse(404, f'no job "{name}" was registered here: GET /v1/jobs says which are `watched`')
    ended = Planned(kinds.JOB_ENDED, {"outcome": "finished", "detail": "it is watched no longer"}, name)
    open_ids = [item.summary.id for item in service.incidents.unfinished(job=name)]
    closed = [Planned(kinds.CLOSED, closing_payload("finished", "it is watched no longer"), name, item) for item in open_ids]
    return [Planned(kinds.JOB_UNWATCHED, {"reason": reason}, name), ended, *closed], f"{name} is watched no longer; its history stays"


def _run(config: JobConfig) -> dict[str, Any]:
    """As a controller registers a run (minder.record.incidents.kinds.JOB_REGISTERED)."""
    inside = [machine.name for machine in config.machines if not machine.standby]
    domains = {
        machine.name: {key: value for key, value in (("rack", machine.rack), ("switch", machine.switch), ("block", machine.block)) if value}
        for machine in config.machines
    }
    return {
        "machines": inside,
        "standbys": [machine.name for machine in config.machines if machine.standby],
        "gpus": len(inside) * config.ranks_per_machine,
        "domains": {machine: found for machine, found in domains.items() if found},
        "serials": {machine.name: machine.serial for machine in config.machines if machine.serial},
    }
