"""Signals that others send: what a monitor of the site saw of a machine. Evidence, judged by minder's own rules."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from minder.record.api.fields import Answer, JobName, MachineName, Request, Text

__all__ = ["MOST_SIGNALS", "ReportedSignal", "SignalsRequest", "SignalsTaken"]

MOST_SIGNALS = 500
Word = Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$", max_length=255)]


class ReportedSignal(Request):
    """One signal. id: the sender's own name of it: the same id is taken once. time: ISO 8601, now if not given.

    kind "xid": `code`. "link": `state` up or down. "kernel": `message` is the kernel's line. "report": anything else that a monitor
    says of a machine: `name`, `severity`, `state` begin or end.
    """

    id: Word
    kind: Literal["xid", "link", "kernel", "report"]
    machine: MachineName
    time: Annotated[str, StringConstraints(max_length=40)] | None = None
    device: MachineName | None = None
    message: Text | None = None
    code: Annotated[int, Field(strict=True, ge=0, le=100_000)] | None = None
    state: Literal["up", "down", "begin", "end"] | None = None
    name: Word | None = None
    severity: Literal["info", "warning", "fatal"] = "warning"

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
    """job: of the machines; if not given, every job that has the machine."""

    signals: Annotated[tuple[ReportedSignal, ...], Field(min_length=1, max_length=MOST_SIGNALS)]
    job: JobName | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_a_list_of_them(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "signals" not in given:
            one = '{"id": "probe-17", "kind": "xid", "machine": "node-0002", "code": 79}'
            raise ValueError(f'signals stand in a list, also a single one: send {{"signals": [{one}]}}')
        return given


class SignalsTaken(Answer):
    """accepted: written now. repeated: were known. dropped: too many of one machine. ignored: say nothing of a machine of a job.
    unknown: names of machines that no running job has (at most 20)."""

    accepted: int
    repeated: int
    dropped: int
    ignored: int
    unknown: tuple[str, ...] = ()
