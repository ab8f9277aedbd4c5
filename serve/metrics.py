"""The service's own metrics, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["CONTENT_TYPE", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """A registry of its own: two services in one process do not share it. route: the path's template, never the path itself."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("minder_service_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "minder_service_request_seconds", "Time to the answer's first byte.", ["route"], registry=self.registry, buckets=_SECONDS
        )
        self.actions = Counter("minder_service_actions", "Actions written to the ledger.", ["route"], registry=self.registry)
        self.refused = Counter("minder_service_refused", "Requests refused before they were looked at.", ["why"], registry=self.registry)
        self.uploads = Counter("minder_service_uploads", "Uploads scored, by what became of them.", ["outcome"], registry=self.registry)
        self.notices = Counter(
            "minder_service_notices", "Attempts to tell a receiver, by what came of them.", ["target", "outcome"], registry=self.registry
        )
        self.signals = Counter("minder_service_signals", "Signals, by what became of them.", ["outcome"], registry=self.registry)
        self.streams = Gauge("minder_service_event_streams", "Event streams that are open.", registry=self.registry)

    def exposition(self) -> bytes:
        return generate_latest(self.registry)
