"""What is not sent yet, for one receiver. The ledger says how far it was sent; a service that was killed goes on from there.

Every notice is sent until it was taken: at least once, in the ledger's order. A receiver forgets what it has seen by the notice's id.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from minder.model.clock import Clock
from minder.model.errors import LedgerError
from minder.model.history import LedgerEvent
from minder.record.api.notices import Notice
from minder.record.incidents import kinds
from minder.record.store.events import EventQuery, EventRow, EventStore
from serve.notify.alerts import alerts_of
from serve.notify.notices import TOLD_KINDS, notice_of
from serve.notify.send import Attempt, Sender
from serve.notify.targets import Target

__all__ = ["Outbox", "Outcome"]

_log = logging.getLogger("minder.serve")
_POLL_S = 1.0
_RENEW_S = 60.0
_LONGEST_PAUSE_S = 60.0
_REFUSALS = 5
_TOLD_AFTER = 5
_BATCH = 200
Outcome = Callable[[str, str], None]


@dataclass(slots=True)
class Outbox:
    """`step` does what is due and says how long to wait. open_incidents: those that Alertmanager must go on knowing of.
    note: called with the receiver's name and what came of an attempt."""

    target: Target
    sender: Sender
    events: EventStore
    clock: Clock
    public_url: str | None = None
    open_incidents: Callable[[], Sequence[str]] = tuple
    note: Outcome = lambda name, outcome: None
    failures: int = 0
    last_error: str = ""
    waiting_since_s: float | None = None
    _cursor: int | None = None
    _queue: deque[LedgerEvent] = field(default_factory=deque)
    _renewed_s: float = float("-inf")

    def step(self) -> float:
        """Send at most one notice. Returns the seconds until the next step is due."""
        try:
            return self._step()
        except LedgerError as error:
            _log.warning("notify %s: %s", self.target.name, error)
            return 5.0

    def _step(self) -> float:
        if self._cursor is None:
            self._cursor = self._find_cursor()
        while self._queue or self._fetch():
            event = self._queue[0]
            of_incident = self._until(event)
            notice = notice_of(self.target, of_incident, self.public_url)
            if notice is None:
                self._advance(event)
                continue
            return self._settle(event, notice, self._send(notice, of_incident))
        self.waiting_since_s = None
        return self._renew()

    def _find_cursor(self) -> int:
        """How far notices were sent to this receiver, by any service. A new receiver gets what comes from now on."""
        found = self.events.select(EventQuery(kinds=(kinds.NOTIFIED,)))
        sent = [int(event.payload.get("upto", 0)) for event in found if event.payload.get("target") == self.target.name]
        if sent:
            return max(sent)
        newest = self.events.last_id()
        self._write(newest, "begun", "it gets what comes from now on")
        return newest

    def _fetch(self) -> bool:
        """More events, past those that another service on this ledger has sent meanwhile."""
        while not self._queue:
            assert self._cursor is not None
            query = EventQuery(since_id=self._cursor, kinds=(*TOLD_KINDS, kinds.NOTIFIED), limit=_BATCH)
            found = self.events.select(query)
            ours = [event for event in found if event.kind == kinds.NOTIFIED and event.payload.get("target") == self.target.name]
            done = max((int(event.payload.get("upto", 0)) for event in ours), default=0)
            self._queue.extend(event for event in found if event.kind in TOLD_KINDS and event.incident is not None and event.id > done)
            if not self._queue and found:
                self._cursor = found[-1].id
            if len(found) < _BATCH:
                break
        return bool(self._queue)

    def _until(self, event: LedgerEvent) -> list[LedgerEvent]:
        found = self.events.select(EventQuery(incident=event.incident, without_kinds=(kinds.EVIDENCE, kinds.NOTIFIED)))
        return [item for item in found if item.id <= event.id]

    def _send(self, notice: Notice, events: Sequence[LedgerEvent]) -> Attempt:
        now_s = self.clock.now_s()
        if self.target.kind != "alertmanager":
            return self.sender.send_notice(notice, now_s)
        return self.sender.send_alerts(alerts_of(self.target, events, now_s, self.public_url))

    def _settle(self, event: LedgerEvent, notice: Notice, attempt: Attempt) -> float:
        if attempt.delivered:
            self._write(event.id, "delivered", attempt.detail, event)
            self._done(event, "delivered")
            return 0.0
        if attempt.refused and self.failures + 1 >= _REFUSALS:
            self._write(event.id, "refused", f"{attempt.detail}, {self.failures + 1} times: given up", event)
            self._done(event, "refused")
            return 0.0
        return self._fail(attempt, event)

    def _done(self, event: LedgerEvent, outcome: str) -> None:
        self.note(self.target.name, outcome)
        self.failures, self.last_error, self.waiting_since_s = 0, "", None
        self._advance(event)

    def _fail(self, attempt: Attempt, event: LedgerEvent | None) -> float:
        self.failures += 1
        self.last_error = attempt.detail
        self.note(self.target.name, "failed")
        if self.waiting_since_s is None:
            self.waiting_since_s = self.clock.now_s()
        _log.warning("notify %s: attempt %d: %s", self.target.name, self.failures, attempt.detail)
        if self.failures == _TOLD_AFTER:
            text = f"{self.target.name} gets no notices: {attempt.detail}; it is tried again until it answers"
            payload = json.dumps({"what": "notify", "detail": text})
            self.events.insert(EventRow(self.clock.now_s(), kinds.DEGRADED, payload, event.job if event else None))
        return max(attempt.wait_s, min(_LONGEST_PAUSE_S, 2.0 ** min(self.failures - 1, 10)))

    def _advance(self, event: LedgerEvent) -> None:
        self._queue.popleft()
        self._cursor = event.id

    def _renew(self) -> float:
        """Alertmanager forgets what is not sent again."""
        now_s = self.clock.now_s()
        if self.target.kind != "alertmanager" or now_s < self._renewed_s + _RENEW_S:
            return _POLL_S
        alerts = []
        for incident in self.open_incidents():
            events = self.events.select(EventQuery(incident=incident, without_kinds=(kinds.EVIDENCE, kinds.NOTIFIED)))
            if events and self.target.wants_job(next((item.job for item in events if item.job), None)):
                alerts += alerts_of(self.target, events, now_s, self.public_url)
        if alerts:
            attempt = self.sender.send_alerts(alerts)
            if not attempt.delivered:
                return self._fail(attempt, None)
            self.failures, self.last_error, self.waiting_since_s = 0, "", None
        self._renewed_s = now_s
        return _POLL_S

    def _write(self, upto: int, outcome: str, detail: str, event: LedgerEvent | None = None) -> None:
        payload = {"target": self.target.name, "kind": self.target.kind, "upto": upto, "outcome": outcome, "detail": detail}
        payload |= {"attempts": self.failures + 1} if event is not None else {}
        job, incident = (event.job, event.incident) if event is not None else (None, None)
        self.events.insert(EventRow(self.clock.now_s(), kinds.NOTIFIED, json.dumps(payload), job, incident))
