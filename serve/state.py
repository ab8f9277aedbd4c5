"""What the routes of one service share."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from minder.model.clock import Clock, SystemClock
from minder.record.incidents import kinds
from minder.record.incidents.skips import SKIP_KINDS, SkipFold
from minder.record.incidents.updates import UPDATE_KINDS
from minder.record.store.answers import AnswerStore
from minder.record.store.engine import safe_name
from minder.record.store.events import EventStore
from minder.record.store.leases import LeaseStore
from minder.record.store.sessions import SessionStore
from minder.record.store.tokens import TokenStore
from serve.approval_index import ApprovalIndex
from serve.buckets import Buckets
from serve.heard import Listening
from serve.identity.code_flow import CodeFlow
from serve.identity.oidc import Oidc
from serve.incident_index import IncidentIndex
from serve.job_index import JobIndex
from serve.job_shapes import JobShape, JobShapes
from serve.machine_index import MachineIndex
from serve.metrics import Metrics
from serve.models import ModelList
from serve.notify.outbox import Outbox
from serve.notify.running import Outboxes
from serve.notify.send import Sender
from serve.notify.targets import Target
from serve.one_reading import OneReading
from serve.order_index import OrderIndex, UpdatePast
from serve.scoring.pool import ScoringPool
from serve.scoring.sessions import ScoreSessions
from serve.settings import Settings
from serve.shared_parts import SharedParts
from serve.status_files import StatusFiles
from serve.tail import Tail
from serve.track_index import TrackIndex
from serve.watching.known import KnownJobs

__all__ = ["Service", "open_service", "service_of"]


@dataclass(slots=True)
class Service:
    """One open service; `close` it."""

    settings: Settings
    clock: Clock
    events: EventStore
    tokens: TokenStore
    sessions: SessionStore
    answers: AnswerStore
    incidents: IncidentIndex
    jobs: JobIndex
    machines: MachineIndex
    questions: ApprovalIndex
    track: TrackIndex
    updates: OrderIndex[UpdatePast]
    skips: OrderIndex[SkipFold]
    listening: Listening
    tail: Tail
    scoring: ScoringPool
    scored: ScoreSessions
    requests: Buckets
    failures: Buckets
    signals_by_caller: Buckets
    signals_by_machine: Buckets
    sign_ins: Buckets
    metrics: Metrics = field(default_factory=Metrics)
    oidc: Oidc | None = None
    code_flow: CodeFlow | None = None
    models: ModelList = field(default_factory=ModelList)
    outboxes: Outboxes = field(default_factory=Outboxes)
    parts: SharedParts = field(default_factory=SharedParts)
    status_files: StatusFiles = field(default_factory=StatusFiles)
    shapes: JobShapes = field(default_factory=JobShapes)
    open_streams: int = 0
    reading_past: bool = False  # a process that has just begun, on a long ledger
    registering: threading.Lock = field(default_factory=threading.Lock)

    @property
    def known(self) -> KnownJobs:
        """The jobs whose configuration this service has."""
        return KnownJobs(self.settings, self.jobs, self.status_files)

    def shape(self, job: str) -> JobShape | None:
        """Where a job's machines stand and which ranks they run; None where the ledger knows no such job."""
        past = self.jobs.pasts().get(job)
        return None if past is None else self.shapes.of(job, past, self.known.config(job))

    @property
    def location(self) -> str:
        """The ledger's place, without a password."""
        return safe_name(self.settings.ledger)

    def read_past(self) -> None:
        """What is kept in memory, before anybody asks for it. Raises LedgerError."""
        self.jobs.pasts()
        self.questions.approvals()
        next(self.incidents.unfinished(), None)
        next(self.incidents.newest_first(), None)
        self.machines.records(None)
        self.track.record(0.0, 0.0)
        for name in self.jobs.pasts():
            if (shape := self.shape(name)) is not None:
                shape.titles("pp")
            if (path := self.known.status_file(name)) is not None:
                self.status_files.read(path)

    def close(self) -> None:
        for store in (self.events, self.tokens, self.sessions, self.answers, self.listening):
            store.close()


def open_service(settings: Settings, clock: Clock | None = None) -> Service:
    """Open the ledger and everything around it. Raises BadInputError, LedgerError."""
    clock = clock or SystemClock()
    events = EventStore(settings.ledger)
    reading = OneReading(events)
    limits = settings.limits
    service = Service(
        settings=settings,
        clock=clock,
        events=events,
        tokens=TokenStore(settings.ledger),
        sessions=SessionStore(settings.ledger),
        answers=AnswerStore(settings.ledger),
        incidents=IncidentIndex(events),
        jobs=JobIndex(events),
        machines=MachineIndex(reading),
        questions=ApprovalIndex(events),
        track=TrackIndex(reading),
        updates=OrderIndex(events, kinds.UPDATE_ASKED, (*UPDATE_KINDS, kinds.NOTE), UpdatePast),
        skips=OrderIndex(events, kinds.SKIP_ASKED, SKIP_KINDS, SkipFold),
        listening=Listening(LeaseStore(settings.ledger), clock),
        tail=Tail(events),
        scoring=ScoringPool(limits),
        scored=ScoreSessions(limits, time.monotonic),
        requests=Buckets(limits.rate, limits.burst, time.monotonic),
        failures=Buckets(limits.failure_rate, limits.failure_burst, time.monotonic),
        sign_ins=Buckets(limits.sign_in_rate, limits.sign_in_burst, time.monotonic),
        signals_by_caller=Buckets(limits.signal_rate, limits.signal_burst, time.monotonic),
        signals_by_machine=Buckets(limits.machine_rate, limits.machine_burst, time.monotonic),
    )
    service.oidc = None if settings.file.oidc is None else Oidc(settings.file.oidc)
    service.code_flow = _code_flow(service)
    service.outboxes = Outboxes([_outbox(service, target) for target in settings.file.notify])
    return service


def _code_flow(service: Service) -> CodeFlow | None:
    oidc, public_url = service.oidc, service.settings.file.public_url
    if oidc is None or oidc.settings.sign_in is None or public_url is None:
        return None
    return CodeFlow(oidc, oidc.settings.sign_in, public_url)


def _outbox(service: Service, target: Target) -> Outbox:
    def open_incidents() -> list[str]:
        return [item.summary.id for item in service.incidents.unfinished()]

    def note(name: str, outcome: str) -> None:
        service.metrics.notices.labels(name, outcome).inc()

    public_url = service.settings.file.public_url
    return Outbox(target, Sender(target), service.events, service.clock, public_url, open_incidents, note)


def service_of(connection: HTTPConnection) -> Service:
    """The service that this request came to."""
    service = connection.app.state.service
    assert isinstance(service, Service)
    return service
