"""What keeps minder from acting now or later: pauses and maintenance windows, as routes and pages read them."""

from __future__ import annotations

from minder.model.history import Maintenance, Pause
from minder.record.incidents import kinds
from minder.record.incidents.history import active_pauses
from minder.record.incidents.maintenance import fold_maintenance
from minder.record.store.events import EventQuery
from serve.state import Service

__all__ = ["maintenance_windows", "pauses_in_force"]


def pauses_in_force(service: Service) -> tuple[Pause, ...]:
    """Of every scope. Raises LedgerError."""
    return active_pauses(service.events.select(EventQuery(kinds=(kinds.PAUSE, kinds.UNPAUSE))), service.clock.now_s())


def maintenance_windows(service: Service) -> tuple[Maintenance, ...]:
    """Those that hold now or are still to come. Raises LedgerError."""
    return fold_maintenance(service.events.select(EventQuery(kinds=(kinds.MAINTENANCE, kinds.MAINTENANCE_ENDED))), service.clock.now_s())
