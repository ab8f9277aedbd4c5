"""Maintenance windows out of ledger events: what people have planned to work on, and when. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from minder.errors import WireError
from minder.incidents import kinds
from minder.types import LedgerEvent, Maintenance
from minder.wire.codec import from_json

__all__ = ["fold_maintenance"]


def fold_maintenance(events: Sequence[LedgerEvent], now_s: float) -> tuple[Maintenance, ...]:
    """Windows that hold at `now_s` or are still to come, soonest first; one that was ended is gone."""
    found: dict[str, Maintenance] = {}
    for event in events:
        if event.kind == kinds.MAINTENANCE_ENDED:
            found.pop(str(event.payload.get("id")), None)
        elif event.kind == kinds.MAINTENANCE:
            try:
                window = from_json(Maintenance, event.payload)
            except WireError:  # written by a version that knows more than this one
                continue
            found[window.id] = window
    return tuple(sorted((item for item in found.values() if item.until_s > now_s), key=lambda item: (item.from_s, item.id)))
