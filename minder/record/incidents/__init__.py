"""The append-only ledger and what is read out of it: incidents, history. Light: names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Incident", "Intent", "Ledger", "Operation", "Timings", "find_ledger", "fold_history", "fold_incident", "kinds"]

if TYPE_CHECKING:
    from minder.record.incidents import kinds
    from minder.record.incidents.fold import fold_incident
    from minder.record.incidents.history import fold_history
    from minder.record.incidents.ledger import Intent, Ledger, Operation
    from minder.record.incidents.location import find_ledger
    from minder.record.incidents.record import Incident, Timings

_HOMES = {
    "Incident": "record",
    "Intent": "ledger",
    "Ledger": "ledger",
    "Operation": "ledger",
    "Timings": "record",
    "find_ledger": "location",
    "fold_history": "history",
    "fold_incident": "fold",
}


def __getattr__(name: str) -> Any:
    import importlib

    if name == "kinds":
        return importlib.import_module("minder.record.incidents.kinds")
    if name in _HOMES:
        return getattr(importlib.import_module(f"minder.record.incidents.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'minder.record.incidents' has no attribute {name!r}")
