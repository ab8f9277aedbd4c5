"""Ledger events become notices: a verdict, what was done about it, the end of its incident. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from minder.model.clock import format_time
from minder.model.evidence import TIER_ORDER
from minder.model.history import LedgerEvent
from minder.record.api.notices import Notice
from minder.record.incidents import Incident, fold_incident, kinds
from minder.record.incidents.report import describe_evidence
from minder.record.incidents.timeline import describe
from serve.notify.redact import redact
from serve.notify.targets import Target

__all__ = ["TOLD_KINDS", "link_to", "notice_of"]

TOLD_KINDS = (kinds.VERDICT, kinds.APPROVAL_ASKED, kinds.RESULT, kinds.AMBIGUOUS, kinds.FIRST_STEP, kinds.CLOSED)
_MOST_EVIDENCE = 12


def notice_of(target: Target, events: Sequence[LedgerEvent], public_url: str | None = None) -> Notice | None:
    """What the last of an incident's events says to this receiver, as all was known then; None where it wants nothing of it."""
    event, incident = events[-1], fold_incident(events)
    kind = _kind(events, incident)
    if kind is None or kind not in target.tell or not target.wants_job(incident.job) or not _reached(target, events, kind):
        return None
    verdict = incident.verdict
    evidence = tuple(describe_evidence(item) for item in incident.evidence[:_MOST_EVIDENCE]) if target.evidence else ()
    what = describe(event) if target.evidence else _plain(kind, incident)
    return Notice(
        id=f"event-{event.id}",
        kind=kind,
        time=format_time(event.time_s),
        job=incident.job,
        incident=incident.id,
        state=incident.state,
        tier=verdict.tier if verdict else None,
        cause=verdict.cause if verdict else None,
        confidence=verdict.confidence if verdict else None,
        machines=verdict.machines if verdict else (),
        title=_title(kind, incident),
        what=redact(what, target.redact),
        evidence=redact(evidence, target.redact),
        undo=incident.undo,
        link=link_to(public_url, incident.id),
    )


def link_to(public_url: str | None, incident: str) -> str | None:
    """The incident's page."""
    return None if public_url is None else f"{public_url.rstrip('/')}/incidents/{incident}"


def _kind(events: Sequence[LedgerEvent], incident: Incident) -> Literal["verdict", "question", "action", "closed"] | None:
    event = events[-1]
    if event.kind == kinds.VERDICT and event.payload.get("kind") != "recovered":
        return "verdict"
    if event.kind == kinds.APPROVAL_ASKED:
        return "question"
    if event.kind in (kinds.RESULT, kinds.AMBIGUOUS):
        intents = [item for item in events if item.kind == kinds.INTENT and item.operation_id == event.operation_id]
        return "action" if any(item.payload.get("action") in kinds.ACTS for item in intents) else None
    was_open = len(events) > 1 and fold_incident(events[:-1]).closed_s is None
    return "closed" if was_open and incident.closed_s is not None else None


def _reached(target: Target, events: Sequence[LedgerEvent], kind: str) -> bool:
    """A verdict speaks for itself; what follows is sent where some verdict of the incident was."""
    verdicts = [event for event in events if event.kind == kinds.VERDICT and event.payload.get("kind") != "recovered"]
    meant = verdicts[-1:] if kind == "verdict" else verdicts
    tiers = {str(event.payload.get("tier")) for event in meant}
    return bool(tiers & set(target.tiers)) or any(tier not in TIER_ORDER for tier in tiers)  # a newer version's tier is sent to all


def _title(kind: str, incident: Incident) -> str:
    who = ", ".join(incident.verdict.machines) if incident.verdict and incident.verdict.machines else "no machine to blame"
    cause = incident.verdict.cause if incident.verdict else "unknown"
    where = f"job {incident.job}" if incident.job else "no job"
    if kind == "verdict":
        return f"{where}: {who}, {cause}"
    if kind == "question":
        return f"{where}: may {who} be evicted? ({cause})"
    return f"{where}: {who}: {'it is over' if kind == 'closed' else 'acted'} ({cause})"


def _plain(kind: str, incident: Incident) -> str:
    """Without anything that was measured or logged."""
    verdict = incident.verdict
    if kind == "closed":
        return f"incident {incident.id} is closed: {incident.closed_by}"
    if kind == "question":
        return "an operator is asked: minder decision list"
    if kind == "action":
        return f"{incident.results[-1].outcome.replace('_', ' ')}" if incident.results else "acted"
    return f"verdict {verdict.tier}: {', '.join(verdict.machines) or 'no machine stands out'}, {verdict.cause}" if verdict else "a verdict"
