"""Incidents and the events that they are made of. Times named `..._s` are unix seconds, the others ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field

from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Evidence, Verdict
from minder.record.api.fields import Answer, Request, Text

__all__ = ["Capture", "Event", "IncidentDetail", "IncidentSummary", "Moment", "NoteRequest", "Recorded"]


class IncidentSummary(Answer):
    """An incident in a list."""

    id: str = Field(description="Id of the incident.")
    job: str | None = Field(description="Job that it is of; null where it is of none.")
    state: Literal["open", "acting", "recovering", "closed"] = Field(description="How far it is.")
    opened: str = Field(description="When it was opened, ISO 8601 in UTC.")
    closed: str | None = Field(description="When it was closed, ISO 8601 in UTC; null while it is not.")
    machines: tuple[str, ...] = Field(description="Machines that were accused.")
    kind: str | None = Field(description="What the newest verdict is about: `machine`, `group` or `job`; null before the first verdict.")
    cause: str | None = Field(description="Kind of fault, such as `stall`; null before the first verdict.")
    tier: str | None = Field(description="How grave: `watch`, `page` or `evict`; null before the first verdict.")
    confidence: float | None = Field(description="Confidence of the newest verdict, 0 to 1; null before the first.")
    action: str | None = Field(
        description="What the newest decision is: `evict`, `trial`, `diagnose`, `replay`, `restart`, `page`, `none`; null before any.",
    )
    reason: str | None = Field(description="Word for the reason of that decision, such as `dry_run`; null before the first.")
    evicted: tuple[str, ...] = Field(description="Machines that were taken out.")
    outcomes: Mapping[str, str] = Field(description="Machine to what the repair found: `confirmed` or `no-fault-found`.")


class Moment(Answer):
    """One line of an incident's timeline."""

    time: str = Field(description="When, ISO 8601 in UTC.")
    what: str = Field(description="What happened, in words.")


class IncidentDetail(IncidentSummary):
    """One incident: who, why, what was done, how to undo it, how long it took (seconds)."""

    closed_by: str = Field(description="What closed it; empty while it is open.")
    verdict: Verdict | None = Field(description="The newest verdict; null before the first.")
    evidence: tuple[Evidence, ...] = Field(description="What speaks for that verdict.")
    against: tuple[Evidence, ...] = Field(description="What speaks against it.")
    decisions: tuple[Decision, ...] = Field(description="Every decision about it, oldest first.")
    results: tuple[ActionResult, ...] = Field(description="What was done, and what came of it, oldest first.")
    captured: tuple[str, ...] = Field(description="What was captured before anything was ended.")
    replacements: tuple[str, ...] = Field(description="Machines that took the place of the evicted ones.")
    undo: tuple[str, ...] = Field(description="Commands that take back what was done, in order.")
    notes: tuple[str, ...] = Field(description="Remarks of people, oldest first.")
    durations: Mapping[str, float | None] = Field(
        description="Seconds from one moment to the next (`detect`, `decide`, ...); null for a moment that has not come.",
    )
    step: int | None = Field(description="First training step after the restart; null before it.")
    steps_lost: int | None = Field(description="Training steps that were done again; null if not known.")
    gpu_seconds_lost: float | None = Field(
        description="GPU-seconds lost to it (device-seconds where a machine has no GPUs); null if not known.",
    )
    timeline: tuple[Moment, ...] = Field(description="What happened, oldest first.")
    report: str = Field(description="The whole incident as text, as `minder incidents show` prints it.")


class Capture(Answer):
    """What was captured of a machine before anything was ended."""

    time: str = Field(description="When it was captured, ISO 8601 in UTC.")
    machine: str | None = Field(description="Machine that it is of; null where it is of none.")
    what: str = Field(description="What it is: `stacks`, `sockets`, `logs`, ...")
    data: Any = Field(description="The capture itself.")


class Event(Answer):
    """One event of the ledger."""

    id: int = Field(description="Id in the ledger; it grows.")
    time: str = Field(description="When, ISO 8601 in UTC.")
    time_s: float = Field(default=0.0, description="The same in unix seconds.")
    operation_id: str | None = Field(default=None, description="Operation that it belongs to; null where it belongs to none.")
    kind: str = Field(description="Kind of event, such as `verdict`.")
    job: str | None = Field(description="Job that it is of; null where it is of none.")
    incident: str | None = Field(description="Incident that it is of; null where it is of none.")
    what: str = Field(description="The event in words.")
    data: Mapping[str, Any] = Field(description="Its payload; captured evidence is left out (see Capture).")


class NoteRequest(Request):
    """A remark for those who read the incident later."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"text": "vendor case 17"}]})

    text: Text = Field(description="The remark, for the next reader of the incident.")


class Recorded(Answer):
    """An action that is in the ledger: the ids of its events, and what was done in words."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"events": [4711], "detail": "node-0002: confirmed (incident llm-70b-1)"}]})

    events: tuple[int, ...] = Field(description="Ids of the ledger's events that were written.")
    detail: str = Field(description="What was done, in words.")
