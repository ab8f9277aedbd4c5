"""An incident as Alertmanager's alerts (API v2): one per accused machine, resolved when the incident closes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from minder.model.clock import format_time
from minder.model.errors import WireError
from minder.model.evidence import TIER_ORDER, Verdict
from minder.model.history import LedgerEvent
from minder.record.incidents import fold_incident, kinds
from minder.record.incidents.report import describe_evidence
from minder.wire.codec import from_json
from serve.notify.notices import link_to
from serve.notify.redact import redact
from serve.notify.targets import Target

__all__ = ["alerts_of"]

_SEVERITY = {"evict": "critical", "page": "warning", "watch": "info"}
_MOST_LETTERS = 2000
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class _Alert:
    """One set of labels: Alertmanager knows an alert by them, so a verdict with another tier or cause is another alert."""

    begun_s: float
    verdict: Verdict
    ended_s: float | None = field(default=None)


def alerts_of(target: Target, events: Sequence[LedgerEvent], now_s: float, public_url: str | None = None) -> list[dict[str, Any]]:
    """What Alertmanager must know of an incident, from its events so far: what stands until `now_s` + hold_s, what ended then."""
    incident = fold_incident(events)
    found: dict[Labels, _Alert] = {}
    for event in events:
        verdict = _accusation(event)
        if verdict is None:
            continue
        wanted = verdict.tier in target.tiers or verdict.tier not in TIER_ORDER
        meant = {labels: _Alert(event.time_s, verdict) for labels in _labels(incident.id, incident.job, verdict)} if wanted else {}
        for labels, alert in found.items():
            if labels not in meant and alert.ended_s is None:
                alert.ended_s = event.time_s
        for labels, alert in meant.items():
            if labels not in found or found[labels].ended_s is not None:
                found[labels] = alert
    for alert in found.values():
        if incident.closed_s is not None and alert.ended_s is None:
            alert.ended_s = max(alert.begun_s, incident.closed_s)
    link = link_to(public_url, incident.id)
    undo = "; ".join(incident.undo)
    return [_document(target, dict(labels), alert, {"undo": undo, "link": link or ""}, now_s) for labels, alert in found.items()]


def _accusation(event: LedgerEvent) -> Verdict | None:
    if event.kind != kinds.VERDICT or event.payload.get("kind") == "recovered":
        return None
    try:
        return from_json(Verdict, event.payload)
    except WireError:  # written by a version that knows more than this one
        return None


def _labels(incident: str, job: str | None, verdict: Verdict) -> list[Labels]:
    shared = {
        "alertname": "MinderVerdict",
        "incident": incident,
        "training_job": job or "",
        "severity": _SEVERITY.get(verdict.tier, "warning"),
        "tier": verdict.tier,
        "cause": verdict.cause,
        "kind": verdict.kind,
    }
    each = [{**shared, "machine": machine} for machine in verdict.machines] or [shared]
    return [tuple(sorted((name, value) for name, value in labels.items() if value)) for labels in each]


def _document(target: Target, labels: dict[str, str], alert: _Alert, extra: dict[str, str], now_s: float) -> dict[str, Any]:
    verdict = alert.verdict
    who = labels.get("machine", "no machine to blame")
    notes = {"summary": f"{who}: {verdict.cause}, confidence {verdict.confidence:.2f}"}
    if target.evidence:
        measured = "; ".join(describe_evidence(item) for item in verdict.evidence)
        notes["description"] = redact(measured, target.redact)[:_MOST_LETTERS]
    notes |= extra
    ends_s = now_s + target.hold_s if alert.ended_s is None else alert.ended_s
    return {
        "labels": labels,
        "annotations": {name: value for name, value in notes.items() if value},
        "startsAt": format_time(alert.begun_s),
        "endsAt": format_time(ends_s),
        "generatorURL": extra["link"],
    }
