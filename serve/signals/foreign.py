"""What other systems send, as signals of ours: Alertmanager's webhook, NVSentinel's health events, gpud's states and events.

Schemas: Alertmanager webhook version 4; NVSentinel `HealthEvent` as protobuf's JSON, bare, in a list, or in a CloudEvent; gpud API v1.
Keys that we do not know are ignored: these formats are others'.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Set
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from minder.model.clock import format_time
from minder.record.api.fields import NAME
from minder.record.api.signals import MOST_SIGNALS, ReportedSignal

__all__ = [
    "GPUD",
    "HEALTH_EVENTS",
    "AlertmanagerMessage",
    "GpudComponent",
    "HealthEvents",
    "read_alerts",
    "read_gpud",
    "read_health_events",
]

_MACHINE_LABELS = ("machine", "node", "nodename", "hostname", "host", "kubernetes_node", "instance")
_OWN_ALERT = "MinderVerdict"
_SEVERITIES = {"critical": "fatal", "fatal": "fatal", "page": "fatal", "error": "warning", "warning": "warning", "degraded": "warning"}
_XID = re.compile(r"\bxid\b\D{0,12}(\d{1,3})\b", re.IGNORECASE)
Short = Annotated[str, Field(max_length=4000)]
ALERTS: dict[str, Any] = {
    "alerts": [
        {
            "status": "firing",
            "labels": {"alertname": "GpuRowRemap", "severity": "critical", "node": "node-0002"},
            "annotations": {"summary": "row remapping failed"},
            "fingerprint": "3f0a9c41d2be",
            "startsAt": "2026-03-02T06:12:31Z",
        }
    ]
}
HEALTH_EVENTS: dict[str, Any] = {
    "events": [
        {
            "nodeName": "node-0002",
            "componentClass": "GPU",
            "checkName": "SysLogsXIDError",
            "isFatal": True,
            "message": "GPU has fallen off the bus",
            "errorCode": ["79"],
            "entitiesImpacted": [{"entityType": "GPU", "entityValue": "3"}],
            "generatedTimestamp": "2026-03-02T06:12:31Z",
        }
    ]
}
GPUD: list[dict[str, Any]] = [
    {
        "component": "accelerator-nvidia-error-xid",
        "events": [{"time": "2026-03-02T06:12:31Z", "name": "error_xid", "type": "Fatal", "message": "Xid 79 on GPU 3"}],
    }
]


class _Foreign(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Alert(_Foreign):
    """One alert, in Alertmanager's own words."""

    status: Literal["firing", "resolved"] = Field(description="Whether it fires or has ended.")
    labels: Mapping[Short, Short] = Field({}, description="`alertname`, `severity`, and the label that names the machine.")
    annotations: Mapping[Short, Short] = Field({}, description="`summary` or `description` is what the evidence says.")
    fingerprint: Short = Field("", description="Alertmanager's id of the alert.")
    starts_at: Short = Field("", alias="startsAt", description="When it began, ISO 8601.")
    ends_at: Short = Field("", alias="endsAt", description="When it ended, ISO 8601.")


class AlertmanagerMessage(_Foreign):
    """Alertmanager's webhook: `url: http://minder:9400/v1/signals/alertmanager` in a receiver's webhook_configs."""

    model_config = ConfigDict(json_schema_extra={"examples": [ALERTS]})

    alerts: Annotated[tuple[Alert, ...], Field(max_length=MOST_SIGNALS, description="The alerts, at most 500.")]


class Entity(_Foreign):
    kind: Short = Field("", alias="entityType")
    value: Short = Field("", alias="entityValue")


class HealthEvent(_Foreign):
    node: Annotated[str, Field(alias="nodeName", max_length=255)]
    agent: Short = ""
    component: Short = Field("", alias="componentClass")
    check: Short = Field("", alias="checkName")
    fatal: bool = Field(False, alias="isFatal")
    healthy: bool = Field(False, alias="isHealthy")
    message: Short = ""
    codes: Annotated[tuple[Short, ...], Field(max_length=50)] = Field((), alias="errorCode")
    entities: Annotated[tuple[Entity, ...], Field(max_length=200)] = Field((), alias="entitiesImpacted")
    time: Any = Field(None, alias="generatedTimestamp")
    strategy: str | int = Field("", alias="processingStrategy")
    id: Short = ""


class HealthEvents(_Foreign):
    """NVSentinel's `HealthEvents`: {"version", "events": [...]}; a single event, or a CloudEvent around one, is taken too."""

    events: Annotated[tuple[HealthEvent, ...], Field(min_length=1, max_length=MOST_SIGNALS)]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> HealthEvents:
        """Raises pydantic's ValidationError."""
        inner = document
        for key in ("data", "healthEvent", "health_event"):
            inner = inner[key] if isinstance(inner.get(key), Mapping) else inner
        return cls.model_validate(inner if "events" in inner else {"events": [inner]})


class GpudEvent(_Foreign):
    """Something that gpud saw happen."""

    time: Short = Field("", description="When, ISO 8601.")
    name: Short = Field("", description="Name of the event.")
    type: Short = Field("", description="How grave: `Info`, `Warning`, `Critical` or `Fatal`.")
    message: Short = Field("", description="The event in words.")


class GpudState(_Foreign):
    """How a component stands."""

    time: Short = Field("", description="When, ISO 8601.")
    name: Short = Field("", description="Name of the state.")
    health: Short = Field("", description="`Healthy`, `Degraded` or `Unhealthy`.")
    reason: Short = Field("", description="Why, in words.")


class GpudComponent(_Foreign):
    """One element of gpud's `/v1/events` or `/v1/states`."""

    component: Annotated[str, Field(max_length=255, description="Name of the component, such as accelerator-nvidia-error-xid.")]
    events: Annotated[tuple[GpudEvent, ...], Field(max_length=MOST_SIGNALS, description="What happened.")] = ()
    states: Annotated[tuple[GpudState, ...], Field(max_length=MOST_SIGNALS, description="How it stands.")] = ()


def read_alerts(message: AlertmanagerMessage, known: Set[str]) -> Iterator[ReportedSignal | None]:
    """One signal per alert; None for one that names no machine of `known`, or that is minder's own."""
    for alert in message.alerts:
        machine = next((name for label in _MACHINE_LABELS if (name := _machine(alert.labels.get(label, ""), known))), None)
        name = alert.labels.get("alertname", "")
        if machine is None or name == _OWN_ALERT:
            yield None
            continue
        ended = alert.status == "resolved"
        fields = {
            "id": _digest("alertmanager", alert.fingerprint or sorted(alert.labels.items()), alert.starts_at, alert.status),
            "machine": machine,
            "time": _time(alert.ends_at if ended else alert.starts_at),
            "name": f"alertmanager/{name or 'alert'}",
            "severity": _SEVERITIES.get(alert.labels.get("severity", "").lower(), "info"),
            "state": "end" if ended else "begin",
            "message": alert.annotations.get("summary") or alert.annotations.get("description") or name,
        }
        yield _signal(kind="report", **fields)


def read_health_events(message: HealthEvents, known: Set[str]) -> Iterator[ReportedSignal | None]:
    """One signal per event, and one per Xid that it names."""
    for event in message.events:
        machine = _machine(event.node, known)
        if machine is None:
            yield None
            continue
        device = next((f"gpu{item.value}" for item in event.entities if item.kind.upper() == "GPU" and item.value.isdigit()), None)
        time = _time(event.time)
        shared = {"machine": machine, "time": time, "device": device, "message": event.message or event.check or "a health event"}
        own = event.id or _digest(event.node, event.check, event.codes, time, event.healthy, event.message)
        codes = [] if event.healthy or "XID" not in event.check.upper() else [int(code) for code in event.codes if code.isdigit()]
        for code in codes:
            yield _signal(id=f"nvsentinel-{own}-xid{code}", kind="xid", code=code, **shared)
        quiet = str(event.strategy) in ("STORE_ONLY", "2")
        severity = "info" if quiet else "fatal" if event.fatal else "warning"
        name = f"nvsentinel/{event.component or 'machine'}/{event.check or 'check'}"
        state = "end" if event.healthy else "begin"
        yield _signal(id=f"nvsentinel-{own}-{state}", kind="report", name=name, severity=severity, state=state, **shared)


def read_gpud(components: tuple[GpudComponent, ...], machine: str) -> Iterator[ReportedSignal | None]:
    """gpud speaks for the machine that it runs on, which its documents do not name."""
    for item in components:
        name = f"gpud/{item.component}"
        for event in item.events:
            own = _digest("gpud", machine, item.component, event.time, event.name, event.message)
            code = _XID.search(f"{event.name} {event.message}") if "xid" in item.component.lower() else None
            shared: dict[str, Any] = {"machine": machine, "time": _time(event.time), "message": event.message or event.name or name}
            if code is not None:
                yield _signal(id=own, kind="xid", code=int(code.group(1)), **shared)
            else:
                severity = _SEVERITIES.get(event.type.lower(), "info")
                yield _signal(id=own, kind="report", name=name, severity=severity, state="begin", **shared)
        for state in item.states:
            ended = state.health.lower() in ("healthy", "ok")
            severity = "fatal" if state.health.lower() == "unhealthy" else "warning"
            own = _digest("gpud", machine, item.component, state.time, state.name, state.health)
            message = state.reason or state.health or name
            word = "end" if ended else "begin"
            yield _signal(
                id=own, kind="report", name=name, severity=severity, state=word, machine=machine, time=_time(state.time), message=message
            )


def _signal(**fields: Any) -> ReportedSignal | None:
    """Texts of strangers are cut and made plain rather than refused: one odd letter must not lose an alarm."""
    fields["message"] = "".join(letter if letter.isprintable() else " " for letter in str(fields["message"])).strip()[:1000] or "-"
    for key in ("id", "name"):
        if key in fields:
            plain = str(fields[key]).encode("ascii", "replace").decode()
            fields[key] = "".join(letter if "\x21" <= letter <= "\x7e" else "_" for letter in plain)[:255]
    try:
        return ReportedSignal.model_validate(fields)
    except ValidationError:
        return None


def _machine(value: str, known: Set[str]) -> str | None:
    """The machine that a label means: its name, without a port, with or without its domain."""
    if value in known:
        return value
    host = value.rsplit(":", 1)[0].strip("[]") if ":" in value else value
    found = next((name for name in (host, host.split(".")[0]) if name in known), None)
    return found if found is None or re.fullmatch(NAME, found) else None


def _time(value: Any) -> str | None:
    """ISO 8601 with nanoseconds at most; protobuf's {"seconds", "nanos"}; anything else is "when it came"."""
    if isinstance(value, Mapping) and isinstance(value.get("seconds"), (int, str)):
        text = str(value["seconds"])
        return format_time(float(text)) if text.isascii() and text.isdigit() and len(text) <= 10 else None
    if not isinstance(value, str) or value.startswith("0001-"):
        return None
    return re.sub(r"(\.\d{6})\d+", r"\1", value)[:40] or None


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:40]
