"""Maintenance windows: planned times in which nothing is done to some machines, racks or jobs. Alarms go on."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from minder.record.api.fields import Answer, JobName, MachineName, Request, Text

__all__ = ["EndMaintenanceRequest", "MaintenanceRequest", "MaintenanceWindow"]

_MOST = 5000


class MaintenanceRequest(Request):
    """A window of at least one machine, rack or job."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"machines": ["node-0007"], "seconds": 7200, "reason": "new HBM"}]})

    begin: Annotated[str, StringConstraints(max_length=40)] | None = Field(
        default=None,
        description="When it begins, ISO 8601 in UTC; now if not given.",
    )
    seconds: Annotated[float, Field(strict=True, gt=0, le=30 * 86_400, allow_inf_nan=False)] = Field(
        description="How long, in seconds, at most 30 days.",
    )
    machines: Annotated[tuple[MachineName, ...], Field(max_length=_MOST)] = Field(default=(), description="Machines that are left alone.")
    racks: Annotated[tuple[MachineName, ...], Field(max_length=_MOST)] = Field(
        default=(),
        description="Racks whose machines are left alone.",
    )
    jobs: Annotated[tuple[JobName, ...], Field(max_length=_MOST)] = Field(default=(), description="Jobs that are left alone.")
    reason: Text = Field(description="Why; the next person reads it.")

    @model_validator(mode="after")
    def _names_something(self) -> MaintenanceRequest:
        if not (self.machines or self.racks or self.jobs):
            raise ValueError("names no machine, rack or job: to stop everything, use a pause")
        return self


class EndMaintenanceRequest(Request):
    """Ends a window before its time, or takes back one that is still to come."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"reason": "done early"}]})

    reason: Text = Field(description="Why; the next person reads it.")


class MaintenanceWindow(Answer):
    """A window that holds now (active) or is still to come."""

    id: str = Field(description="Id of the window.")
    begin: str = Field(description="When it begins, ISO 8601 in UTC.")
    until: str = Field(description="When it ends, ISO 8601 in UTC.")
    active: bool = Field(description="Whether it holds now.")
    machines: tuple[str, ...] = Field(description="Machines that are left alone.")
    racks: tuple[str, ...] = Field(description="Racks whose machines are left alone.")
    jobs: tuple[str, ...] = Field(description="Jobs that are left alone.")
    reason: str = Field(description="Why it was planned.")
    by: str = Field(description="Who planned it.")
