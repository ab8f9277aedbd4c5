"""Maintenance windows: planned times in which nothing is done to some machines, racks or jobs. Alarms go on."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints, model_validator

from minder.record.api.fields import Answer, JobName, MachineName, Request, Text

__all__ = ["EndMaintenanceRequest", "MaintenanceRequest", "MaintenanceWindow"]

_MOST = 5000


class MaintenanceRequest(Request):
    """begin: ISO 8601; now if not given. seconds: how long. At least one machine, rack or job."""

    begin: Annotated[str, StringConstraints(max_length=40)] | None = None
    seconds: Annotated[float, Field(strict=True, gt=0, le=30 * 86_400, allow_inf_nan=False)]
    machines: Annotated[tuple[MachineName, ...], Field(max_length=_MOST)] = ()
    racks: Annotated[tuple[MachineName, ...], Field(max_length=_MOST)] = ()
    jobs: Annotated[tuple[JobName, ...], Field(max_length=_MOST)] = ()
    reason: Text

    @model_validator(mode="after")
    def _names_something(self) -> MaintenanceRequest:
        if not (self.machines or self.racks or self.jobs):
            raise ValueError("names no machine, rack or job: to stop everything, use a pause")
        return self


class EndMaintenanceRequest(Request):
    """Ends a window before its time, or takes back one that is still to come."""

    reason: Text


class MaintenanceWindow(Answer):
    """A window that holds now (active) or is still to come."""

    id: str
    begin: str
    until: str
    active: bool
    machines: tuple[str, ...]
    racks: tuple[str, ...]
    jobs: tuple[str, ...]
    reason: str
    by: str
