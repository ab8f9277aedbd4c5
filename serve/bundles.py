"""What a vendor gets of an incident, and where its machines stand: as the job registered them, and as its job.toml says where the
service was started with that."""

from __future__ import annotations

from collections.abc import Mapping

from minder.model.history import LedgerEvent
from minder.offline.plots.excerpt import draw_excerpt
from minder.record.incidents import Incident
from minder.record.incidents.bundle import vendor_bundle
from minder.record.store.events import EventQuery
from serve.state import Service

__all__ = ["bundle_of", "places_of", "registered_of"]


def bundle_of(service: Service, found: Incident) -> bytes:
    """The ZIP that `minder incidents bundle` writes."""
    events = service.events.select(EventQuery(incident=found.id))
    return vendor_bundle(events, registered_of(service, found), places_of(service, found), draw_excerpt)


def places_of(service: Service, found: Incident) -> Mapping[str, Mapping[str, str]]:
    """Machine to {"rack", "switch", "serial", ...}; what is not known is not in it."""
    shape = service.shape(found.job or "")
    return {} if shape is None else shape.places


def registered_of(service: Service, found: Incident) -> list[LedgerEvent]:
    """The newest event by which its job registered, or nothing."""
    past = service.jobs.pasts().get(found.job or "")
    return [] if past is None or past.registered is None else [past.registered]
