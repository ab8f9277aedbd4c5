"""Jobs, as the ledger and their controllers know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import StringConstraints

from minder.record.api.fields import Answer, MachineName, Request, Text

__all__ = ["Job", "JobDetail", "RestartRequest", "StandbyRequest"]


class Job(Answer):
    """A job of the ledger. phase: of its newest run. machines: those with ranks now, none once it is over.
    watched: it was registered here, and the service watches it."""

    name: str
    phase: Literal["starting", "running", "recovering", "finished", "failed"]
    generation: int
    runs: int
    registered: str | None
    machines: tuple[str, ...]
    barred: tuple[str, ...]
    open_incidents: tuple[str, ...]
    watched: bool = False


class RestartRequest(Request):
    """Have a job started again in place, now. Restarts that are left, pauses and dry run hold as ever."""

    reason: Text


Address = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@]+$", max_length=300)]


class StandbyRequest(Request):
    """Give a running job one more standby. agent, launcher: where those of the machine listen, such as http://10.0.0.104:9401; the job's
    tokens go there, so their hosts must be among those that the service allows. rack, switch: what it shares with other machines."""

    machine: MachineName
    agent: Address
    launcher: Address
    reason: Text
    rack: MachineName | None = None
    switch: MachineName | None = None


class JobDetail(Job):
    """status: what its controller last wrote of it (machines, scores, step), null where the service does not see that file.
    status_age_s: how old that is. An old status is no sign of health."""

    status: Mapping[str, Any] | None
    status_age_s: float | None
