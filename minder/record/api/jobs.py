"""Jobs, as the ledger and their controllers know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from minder.record.api.fields import Answer, MachineName, Request, Text

__all__ = ["Job", "JobDetail", "RestartRequest", "StandbyRequest"]


class Job(Answer):
    """A job of the ledger."""

    name: str = Field(description="Name of the job.")
    phase: Literal["starting", "running", "recovering", "suspended", "diagnosing", "finished", "failed"] = Field(
        description="What its newest run is doing: `suspended` and `diagnosing` stand so that its machines can be tested."
    )
    generation: int = Field(
        description="Generation that runs or ran last: 1 is the first start, each restart adds one; 0 before the first.",
    )
    runs: int = Field(description="How often the job was begun under this name.")
    registered: str | None = Field(description="When its newest run was registered, ISO 8601 in UTC; null where it was not.")
    machines: tuple[str, ...] = Field(description="Machines that have ranks now; empty once the job is over.")
    barred: tuple[str, ...] = Field(description="Machines that are kept out of it.")
    open_incidents: tuple[str, ...] = Field(description="Ids of its incidents that are not closed.")
    watched: bool = Field(default=False, description="Whether it was registered here, so that the service watches it.")


class RestartRequest(Request):
    """Have a job started again in place, now. Restarts that are left, pauses and dry run hold as ever."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "hangs since the switch was rebooted"}]})

    reason: Text = Field(description="Why; the next person reads it.")


Address = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/?#@]+$", max_length=300)]


class StandbyRequest(Request):
    """Give a running job one more standby. The job's tokens go to its agent and launcher, so the service must allow their hosts."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "machine": "node-0104",
                    "agent": "http://10.0.0.104:9401",
                    "launcher": "http://10.0.0.104:9402",
                    "reason": "repaired",
                    "rack": "r12",
                }
            ]
        }
    )

    machine: MachineName = Field(description="Name of the machine, as its agent and telemetry call it.")
    agent: Address = Field(description="Address of its agent, such as http://10.0.0.104:9401.")
    launcher: Address = Field(description="Address of its launcher, such as http://10.0.0.104:9402.")
    reason: Text = Field(description="Why; the next person reads it.")
    rack: MachineName | None = Field(default=None, description="Rack that it shares with other machines.")
    switch: MachineName | None = Field(default=None, description="Switch that it shares with other machines.")
    block: MachineName | None = Field(
        default=None, description="Block of the network in which it lies, the machines below one spine switch."
    )


class JobDetail(Job):
    """A job, with what its controller last wrote."""

    status: Mapping[str, Any] | None = Field(
        description="What its controller last wrote (machines, scores, step); null where the service does not see that file.",
    )
    status_age_s: float | None = Field(
        description="Age of that status in seconds; null where there is none. An old status is no sign of health.",
    )
