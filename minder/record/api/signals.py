"""Signals that others send: what a monitor of the site saw of a machine. Evidence, judged by minder's own rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from minder.record.api.fields import Answer, JobName, MachineName, Request, Text

__all__ = ["MOST_SIGNALS", "ReportedSignal", "SignalsRequest", "SignalsTaken"]

MOST_SIGNALS = 500
Word = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$", max_length=255)]


class ReportedSignal(Request):
    """One signal."""

    id: Word = Field(description="The sender's own id of it: the same id is taken once.")
    kind: Literal["xid", "link", "kernel", "report"] = Field(
        description="`xid` has `code`; `link` has `state` up or down; `kernel` has the kernel's line as `message`; `report` is "
        "anything else, with `name`.",
    )
    machine: MachineName = Field(description="Machine that it is about.")
    time: Annotated[str, StringConstraints(max_length=40)] | None = Field(
        default=None,
        description="When it was seen, ISO 8601 in UTC; now if not given.",
    )
    device: MachineName | None = Field(default=None, description="Device of the machine, such as gpu3.")
    message: Text | None = Field(default=None, description="What was seen, in words.")
    code: Annotated[int, Field(strict=True, ge=0, le=100_000)] | None = Field(default=None, description="Xid, a whole number.")
    state: Literal["up", "down", "begin", "end"] | None = Field(
        default=None,
        description="`up` or `down` of a link, `begin` or `end` of a report.",
    )
    name: Word | None = Field(default=None, description="Name of what a report is about.")
    severity: Literal["info", "warning", "fatal"] = Field(default="warning", description="How grave the sender takes it to be.")

    @model_validator(mode="after")
    def _is_whole(self) -> ReportedSignal:
        states = {"link": ("up", "down"), "report": ("begin", "end", None)}.get(self.kind, (None,))
        if self.state not in states:
            allowed = " or ".join(f'"{state}"' for state in states if state)
            raise ValueError(f'a signal of kind "{self.kind}" ' + (f"has state {allowed}" if allowed else "has no state: leave it out"))
        needed = {"xid": "code", "kernel": "message", "report": "name"}.get(self.kind)
        if needed is not None and getattr(self, needed) is None:
            raise ValueError(f'a signal of kind "{self.kind}" needs {needed}')
        return self


class SignalsRequest(Request):
    """Signals of one sender."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"signals": [{"id": "probe-17", "kind": "xid", "machine": "node-0002", "code": 79, "device": "gpu3"}]}]
        }
    )

    signals: Annotated[tuple[ReportedSignal, ...], Field(min_length=1, max_length=MOST_SIGNALS)] = Field(
        description="The signals, 1 to 500.",
    )
    job: JobName | None = Field(default=None, description="Job of the machines; every job that has the machine if not given.")

    @model_validator(mode="before")
    @classmethod
    def _is_a_list_of_them(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "signals" not in given:
            one = '{"id": "probe-17", "kind": "xid", "machine": "node-0002", "code": 79}'
            raise ValueError(f'signals stand in a list, also a single one: send {{"signals": [{one}]}}')
        return given


class SignalsTaken(Answer):
    """What became of the signals that were sent."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"accepted": 1, "repeated": 0, "dropped": 0, "ignored": 0, "unknown": []}]})

    accepted: int = Field(description="Number of signals that were written now.")
    repeated: int = Field(description="Number that were known already.")
    dropped: int = Field(description="Number that were too many of one machine.")
    ignored: int = Field(description="Number that say nothing of a machine of a job.")
    unknown: tuple[str, ...] = Field(default=(), description="Machines that no running job has, at most 20.")
