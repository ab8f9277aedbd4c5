"""Where machines stand, as their job registered them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minder.model.history import LedgerEvent
from minder.record.incidents import kinds

__all__ = ["find_gpus", "find_places"]


def find_places(events: Sequence[LedgerEvent]) -> dict[str, dict[str, str]]:
    """Machine to {"rack", "switch", "serial", ...}, from the newest registration among the events; what is not known is not in it."""
    payload = _newest(events)
    found: dict[str, dict[str, str]] = {}
    for machine, domains in (payload.get("domains") or {}).items():
        found[str(machine)] = {str(kind): str(name) for kind, name in domains.items()}
    for machine, serial in (payload.get("serials") or {}).items():
        found.setdefault(str(machine), {})["serial"] = str(serial)
    return found


def find_gpus(events: Sequence[LedgerEvent]) -> int | None:
    """GPUs (ranks) of the job, as it registered them."""
    gpus = _newest(events).get("gpus")
    return int(gpus) if isinstance(gpus, (int, float)) and gpus > 0 else None


def _newest(events: Sequence[LedgerEvent]) -> Mapping[str, Any]:
    return next((event.payload for event in reversed(events) if event.kind == kinds.JOB_REGISTERED), {})
