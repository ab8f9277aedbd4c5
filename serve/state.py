"""What the routes of one service share."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from minder.clock import Clock, SystemClock
from minder.store.answers import AnswerStore
from minder.store.engine import safe_name
from minder.store.events import EventStore
from minder.store.tokens import TokenStore
from serve.buckets import Buckets
from serve.incident_index import IncidentIndex
from serve.metrics import Metrics
from serve.scoring.pool import ScoringPool
from serve.settings import Settings
from serve.tail import Tail

__all__ = ["Service", "open_service", "service_of"]


@dataclass(slots=True)
class Service:
    """One open service; `close` it."""

    settings: Settings
    clock: Clock
    events: EventStore
    tokens: TokenStore
    answers: AnswerStore
    incidents: IncidentIndex
    tail: Tail
    scoring: ScoringPool
    requests: Buckets
    failures: Buckets
    metrics: Metrics = field(default_factory=Metrics)
    open_streams: int = 0

    @property
    def location(self) -> str:
        """The ledger's place, without a password."""
        return safe_name(self.settings.ledger)

    def close(self) -> None:
        for store in (self.events, self.tokens, self.answers):
            store.close()


def open_service(settings: Settings, clock: Clock | None = None) -> Service:
    """Open the ledger and everything around it. Raises BadInputError, LedgerError."""
    events = EventStore(settings.ledger)
    limits = settings.limits
    return Service(
        settings=settings,
        clock=clock or SystemClock(),
        events=events,
        tokens=TokenStore(settings.ledger),
        answers=AnswerStore(settings.ledger),
        incidents=IncidentIndex(events),
        tail=Tail(events),
        scoring=ScoringPool(limits),
        requests=Buckets(limits.rate, limits.burst, time.monotonic),
        failures=Buckets(limits.failure_rate, limits.failure_burst, time.monotonic),
    )


def service_of(connection: HTTPConnection) -> Service:
    """The service that this request came to."""
    service = connection.app.state.service
    assert isinstance(service, Service)
    return service
