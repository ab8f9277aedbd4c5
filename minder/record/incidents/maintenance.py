"""Maintenance windows out of ledger events: what people have planned to work on, and when. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from minder.model.errors import WireError
from minder.model.history import LedgerEvent, Maintenance
from minder.record.incidents import kinds
from minder.wire.codec import from_json

__all__ = ["coming_windows", "fold_maintenance", "note_window"]


def fold_maintenance(events: Sequence[LedgerEvent], now_s: float) -> tuple[Maintenance, ...]:
    """Windows that hold at `now_s` or are still to come, soonest first; one that was ended is gone."""
    found: dict[str, Maintenance] = {}
    for event in events:
        note_window(found, event)
    return coming_windows(found, now_s)


def note_window(found: dict[str, Maintenance], event: LedgerEvent) -> None:
    """Windows by id, after one more event of any kind."""
    if event.kind == kinds.MAINTENANCE_ENDED:
        found.pop(str(event.payload.get("id")), None)
    elif event.kind == kinds.MAINTENANCE:
        with contextlib.suppress(WireError):  # written by a version that knows more than this one
            window = from_json(Maintenance, event.payload)
            found[window.id] = window


def coming_windows(found: Mapping[str, Maintenance], now_s: float) -> tuple[Maintenance, ...]:
    """Those that hold at `now_s` or are still to come, soonest first."""
    return tuple(sorted((item for item in found.values() if item.until_s > now_s), key=lambda item: (item.from_s, item.id)))
