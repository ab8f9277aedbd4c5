"""What an incident keeps of the telemetry around its fault: one machine's metrics against its peers' band. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minder.model.errors import WireError
from minder.model.history import LedgerEvent
from minder.model.telemetry import TelemetryExcerpt
from minder.record.incidents import kinds
from minder.wire.codec import from_json

__all__ = ["TELEMETRY", "find_excerpts", "is_excerpt"]

TELEMETRY = "telemetry"  # `what` of such evidence


def is_excerpt(event: LedgerEvent) -> bool:
    """Whether this is telemetry that was kept, and not something captured before a machine's workers were ended."""
    return event.kind == kinds.EVIDENCE and event.payload.get("what") == TELEMETRY


def find_excerpts(events: Sequence[LedgerEvent]) -> tuple[TelemetryExcerpt, ...]:
    """Of each machine the newest, which goes furthest; what this version cannot read is left out."""
    found: dict[str, TelemetryExcerpt] = {}
    for event in events:
        if is_excerpt(event):
            data: Mapping[str, Any] = event.payload.get("data") or {}
            try:
                excerpt = from_json(TelemetryExcerpt, {**data, "machine": event.payload.get("machine")})
            except WireError:
                continue
            if _is_whole(excerpt):
                found[excerpt.machine] = excerpt
    return tuple(found.values())


def _is_whole(excerpt: TelemetryExcerpt) -> bool:
    rows = [len(values) for panel in excerpt.metrics.values() for values in (panel.low, panel.middle, panel.high, panel.line)]
    return bool(excerpt.times) and set(rows) == {len(excerpt.times)}
