"""Incidents and the events that they are made of. Times named `..._s` are unix seconds, the others ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from minder.model.decision import ActionResult, Decision
from minder.model.evidence import Evidence, Verdict
from minder.record.api.fields import Answer, Request, Text

__all__ = ["Capture", "Event", "IncidentDetail", "IncidentSummary", "Moment", "NoteRequest", "Recorded"]


class IncidentSummary(Answer):
    """An incident in a list. state: "open", "acting", "recovering" or "closed". machines: those that were accused."""

    id: str
    job: str | None
    state: Literal["open", "acting", "recovering", "closed"]
    opened: str
    closed: str | None
    machines: tuple[str, ...]
    kind: str | None
    cause: str | None
    tier: str | None
    confidence: float | None
    action: str | None
    reason: str | None
    evicted: tuple[str, ...]
    outcomes: Mapping[str, str]


class Moment(Answer):
    """One line of an incident's timeline."""

    time: str
    what: str


class IncidentDetail(IncidentSummary):
    """One incident: who, why, what was done, how to undo it, how long it took (seconds)."""

    closed_by: str
    verdict: Verdict | None
    evidence: tuple[Evidence, ...]
    against: tuple[Evidence, ...]
    decisions: tuple[Decision, ...]
    results: tuple[ActionResult, ...]
    captured: tuple[str, ...]
    replacements: tuple[str, ...]
    undo: tuple[str, ...]
    notes: tuple[str, ...]
    durations: Mapping[str, float | None]
    step: int | None
    steps_lost: int | None
    gpu_seconds_lost: float | None
    timeline: tuple[Moment, ...]
    report: str


class Capture(Answer):
    """What was captured of a machine before anything was ended."""

    time: str
    machine: str | None
    what: str
    data: Any


class Event(Answer):
    """One event of the ledger. what: the event in words. data: its payload; captured evidence is left out (see Capture)."""

    id: int
    time: str
    time_s: float = 0.0
    operation_id: str | None = None
    kind: str
    job: str | None
    incident: str | None
    what: str
    data: Mapping[str, Any]


class NoteRequest(Request):
    """A remark for those who read the incident later."""

    text: Text


class Recorded(Answer):
    """An action that is in the ledger: the ids of its events, and what was done in words."""

    events: tuple[int, ...]
    detail: str
