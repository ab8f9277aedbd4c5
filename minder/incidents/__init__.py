"""The append-only ledger and what is read out of it: incidents, history. Light: names load on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Incident", "Intent", "Ledger", "Operation", "Timings", "find_ledger", "fold_history", "fold_incident", "kinds"]

if TYPE_CHECKING:
    from minder.incidents import kinds
    from minder.incidents.fold import fold_incident
    from minder.incidents.history import fold_history
    from minder.incidents.ledger import Intent, Ledger, Operation
    from minder.incidents.location import find_ledger
    from minder.incidents.record import Incident, Timings

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
        return importlib.import_module("minder.incidents.kinds")
    if name in _HOMES:
        return getattr(importlib.import_module(f"minder.incidents.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'minder.incidents' has no attribute {name!r}")
