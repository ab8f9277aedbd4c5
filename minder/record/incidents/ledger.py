"""The append-only ledger: every arrow of the loop is an event, every action an intent before and a result after.

SQL is loaded when a ledger is opened: machines without the controller's libraries ask what an object is, and open none.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from minder.model.clock import Clock, SystemClock
from minder.model.decision import ActionResult, Decision
from minder.model.errors import BadInputError, LedgerError, WireError
from minder.model.evidence import Verdict
from minder.model.history import Approval, History, LedgerEvent
from minder.record.incidents import kinds
from minder.record.incidents.approvals import (
    APPROVAL_KINDS,
    Answer,
    answer_payload,
    check_answerable,
    find_approval,
    fold_approvals,
    refusal,
)
from minder.record.incidents.fold import fold_incident
from minder.record.incidents.log_lines import log_event
from minder.record.incidents.past import Past
from minder.record.incidents.record import Incident
from minder.record.store.rows import EventQuery, EventRow
from minder.wire.codec import from_json, to_json

if TYPE_CHECKING:
    from minder.record.store.leases import Lease

__all__ = ["Intent", "Ledger", "Operation"]

_HAPPENED = frozenset({"done", "already_done"})
_ONCE = (kinds.INTENT, kinds.AMBIGUOUS, kinds.RESULT, kinds.APPROVAL_ASKED, kinds.APPROVAL_SETTLED, kinds.APPROVAL_CLOSED)


@dataclass(frozen=True, slots=True)
class Intent:
    """`first` is False where this operation had been intended before: then `event` is that earlier one."""

    event: LedgerEvent
    first: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """An intent without a result. `ambiguous`: it was tried, and what came of it is not known; look before doing it again."""

    operation_id: str
    intent: LedgerEvent
    decision: Decision | None
    ambiguous: bool


class Ledger:
    """Events in one database; safe for several threads and processes at once.

    Every method raises LedgerError where the database cannot be read or written: then nothing may be acted on.
    """

    def __init__(self, path_or_url: str | Path, *, create: bool = True, clock: Clock | None = None, busy_timeout_s: float = 5.0) -> None:
        """`path_or_url`: a file, ":memory:", or a database URL. `create=False` refuses a file that is not there."""
        from minder.record.store.engine import safe_name
        from minder.record.store.events import EventStore

        self.location = safe_name(str(path_or_url))
        self._clock = clock or SystemClock()
        self._store = EventStore(path_or_url, create=create, busy_timeout_s=busy_timeout_s)
        self._past = Past(self._store)
        self.beat_error = ""  # why the database did not take the newest beat of our lease: then it takes no event either

    def fence(self, lease: Lease | None) -> None:
        """From now on every write is refused (LeaseLostError) once another controller has taken this lease."""
        self._store.fence(lease)

    def note_beat(self, error: str) -> None:
        """Of the lease (minder.act.controller.lease), once a second: a database that is full is seen before there is something to write."""
        self.beat_error = error

    def check_fence(self) -> None:
        """Just before something is done: raises LeaseLostError where another controller leads."""
        self._store.check_fence()

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def append(
        self,
        kind: str,
        payload: Any,
        *,
        job: str | None = None,
        incident: str | None = None,
        operation_id: str | None = None,
        time_s: float | None = None,
    ) -> LedgerEvent:
        """Write one event; it is on disk when this returns. `payload`: a mapping or one of minder's records."""
        if kind in _ONCE:
            raise LedgerError(f'"{kind}" events are written by intend(), complete() and append_once()')
        return _logged(self._store.insert(EventRow(self._now(time_s), kind, _encode(payload), job, incident, operation_id)))

    def append_once(
        self, kind: str, payload: Any, *, job: str | None, incident: str | None, operation_id: str, time_s: float | None = None
    ) -> tuple[LedgerEvent, bool]:
        """Write the only event of this kind of an operation, or find the one that was there first (then False)."""
        event, first = self._store.insert_once(EventRow(self._now(time_s), kind, _encode(payload), job, incident, operation_id))
        return (_logged(event) if first else event), first

    def approvals(self, job: str | None = None) -> list[Approval]:
        """Every eviction that an operator was asked about, oldest first (minder.record.incidents.approvals)."""
        return fold_approvals(self.events(kinds=APPROVAL_KINDS)) if job is None else self._past.approvals(job)

    def answer_approval(self, operation_id: str, answer: Answer, *, by: str, reason: str) -> Approval:
        """An operator's answer. Raises BadInputError where there is no such question, or it can no longer be answered."""
        asked = find_approval(self.approvals(), operation_id)
        check_answerable(asked, self._now(None))
        now, first = self.settle_approval(asked, answer_payload(answer, by, reason))
        if not first:
            raise BadInputError(refusal(now, self._now(None)) or f"{operation_id} was answered already")
        return now

    def settle_approval(self, asked: Approval, payload: Mapping[str, Any]) -> tuple[Approval, bool]:
        """Write what became of a question, or find what was written first (then False). The question as it stands now."""
        name = asked.decision.operation_id
        _, first = self.append_once(kinds.APPROVAL_SETTLED, payload, job=asked.job, incident=asked.incidents[0], operation_id=name)
        return find_approval(self.approvals(asked.job), name), first

    def events(
        self,
        *,
        since_id: int = 0,
        job: str | None = None,
        incident: str | None = None,
        kinds: Sequence[str] | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[LedgerEvent]:
        """Events with an id above `since_id`, oldest first unless `newest_first`."""
        chosen = None if kinds is None else tuple(kinds)
        return self._store.select(EventQuery(since_id, job, incident, None, chosen, limit=limit, newest_first=newest_first))

    def captures(self, incident: str) -> list[LedgerEvent]:
        """The evidence of an incident with all that was captured."""
        return self.events(incident=incident, kinds=[kinds.EVIDENCE])

    def intend(
        self, operation_id: str, what: Decision | Mapping[str, Any], *, job: str, incident: str | None = None, time_s: float | None = None
    ) -> Intent:
        """Write down what is about to be done, before doing it. Unique per operation id.

        `what`: the Decision, or a mapping with at least {"action", "machines"} for smaller steps of an operation.
        """
        row = EventRow(self._now(time_s), kinds.INTENT, _encode(_intent_payload(what)), job, incident, operation_id)
        event, first = self._store.insert_once(row)
        return Intent(_logged(event) if first else event, first)

    def complete(self, operation_id: str, result: ActionResult, *, time_s: float | None = None) -> LedgerEvent:
        """Write down what came of an intent, once.

        The same outcome again (done and already_done are the same) changes nothing and returns the first event; another
        outcome, or no intent, raises LedgerError. An "ambiguous" outcome leaves the operation open: one other may follow.
        """
        intent = self._of_operation(operation_id, kinds.INTENT)
        if intent is None:
            raise LedgerError(f"operation {operation_id} has no intent in {self.location}: call intend() before acting")
        kind = kinds.AMBIGUOUS if result.outcome == "ambiguous" else kinds.RESULT
        if kind == kinds.AMBIGUOUS and (settled := self._of_operation(operation_id, kinds.RESULT)):
            return settled
        when_s = result.time_s if time_s is None else time_s
        event, first = self._store.insert_once(EventRow(when_s, kind, _encode(result), intent.job, intent.incident, operation_id))
        if first:
            log_event(event)
        earlier = str(event.payload.get("outcome"))
        if not first and earlier != result.outcome and not {earlier, result.outcome} <= _HAPPENED:
            raise LedgerError(f"operation {operation_id} ended as {earlier} already: it cannot become {result.outcome}")
        return event

    def result(self, operation_id: str) -> ActionResult | None:
        """What came of the operation; None while it is open or ambiguous."""
        event = self._of_operation(operation_id, kinds.RESULT)
        return None if event is None else from_json(ActionResult, event.payload)

    def open_operations(self, job: str | None = None) -> list[Operation]:
        """Intents without a result, oldest first: what a restarted controller must finish, or look into."""
        found = self._store.select_unanswered(kinds.INTENT, kinds.RESULT, job)
        unsure = {event.operation_id for event in self.events(kinds=[kinds.AMBIGUOUS])} if found else set()
        return [Operation(str(event.operation_id), event, _decision_of(event), event.operation_id in unsure) for event in found]

    def open_incident(self, verdict: Verdict, *, job: str | None, time_s: float | None = None) -> str:
        """Record a verdict and return its incident's id ("llm-70b-3").

        It joins the job's open incident that names one of its machines (or, for a job verdict, the open one that names none);
        otherwise it opens a new one. A "recovered" verdict opens none: "" where there was nothing to close.
        Meant for the controller alone: one process per job.
        """
        now_s = self._now(time_s)
        for incident in self.open_incidents(job):
            same_job = verdict.kind in ("job", "recovered") and not verdict.machines and not incident.machines
            if same_job or set(verdict.machines) & set(incident.machines):
                self.append(kinds.VERDICT, verdict, job=job, incident=incident.id, time_s=now_s)
                return incident.id
        if verdict.kind == "recovered":
            self.append(kinds.VERDICT, verdict, job=job, time_s=now_s)
            return ""
        event = self._store.insert_first(EventRow(now_s, kinds.VERDICT, _encode(verdict), job), job or "fleet")
        return str(event.incident)

    def incident(self, incident: str) -> Incident:
        """The incident with this id. Raises BadInputError where there is none."""
        events = self.events(incident=incident)
        if not events:
            raise BadInputError(f'no incident "{incident}" in {self.location}: `minder incidents list` shows all')
        return fold_incident(events)

    def incidents(self, *, job: str | None = None, since_s: float | None = None, state: str | None = None) -> list[Incident]:
        """Incidents opened since a time, oldest first; state "open" means not closed. Captured evidence is not loaded here."""
        query = EventQuery(job=job, without_kinds=(kinds.EVIDENCE,), any_incident=True, incident_since_s=since_s)
        grouped: dict[str, list[LedgerEvent]] = {}
        for event in self._store.select(query):
            grouped.setdefault(str(event.incident), []).append(event)
        folded = [fold_incident(events) for events in grouped.values()]
        return [item for item in folded if state is None or item.state == state or (state == "open" and item.state != "closed")]

    def open_incidents(self, job: str | None = None) -> list[Incident]:
        """As incidents(state="open"), without reading again what has not changed."""
        return self._past.open_incidents(job)

    def read_past(self) -> None:
        """What decisions ask of the past, before the first of them is urgent: it takes seconds where there are thousands of incidents."""
        now_s = self._now(None)
        self._past.history("", now_s), self._past.suspects(now_s - 3600.0), self._past.open_incidents(None)

    def history(self, job: str, now_s: float | None = None) -> History:
        """What the policy needs to know of the past (minder.record.incidents.history)."""
        return self._past.history(job, self._now(now_s))

    def suspects(self, since_s: float) -> dict[str, float]:
        """Machines of any job that were accused since then and have not recovered: PolicyContext.suspects."""
        return self._past.suspects(since_s)

    def _now(self, time_s: float | None) -> float:
        return self._clock.now_s() if time_s is None else time_s

    def _of_operation(self, operation_id: str, kind: str) -> LedgerEvent | None:
        found = self._store.select(EventQuery(operation_id=operation_id, kinds=(kind,), limit=1))
        return found[0] if found else None


def _logged(event: LedgerEvent) -> LedgerEvent:
    log_event(event)
    return event


def _intent_payload(what: Decision | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(what, Decision):
        return {"action": what.action, "machines": list(what.machines), "replacements": list(what.replacements), "decision": to_json(what)}
    return what


def _decision_of(event: LedgerEvent) -> Decision | None:
    try:
        return from_json(Decision, event.payload["decision"])
    except (KeyError, WireError):
        return None


def _encode(payload: Any) -> str:
    """JSON that any reader takes: ASCII, no NaN (null instead), numpy scalars as numbers."""
    try:
        return json.dumps(_finite(to_json(payload)), allow_nan=False, separators=(",", ":"), default=_number)
    except (TypeError, ValueError) as error:
        raise LedgerError(f"payload cannot be written as JSON: {error}") from error


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value


def _number(value: Any) -> Any:
    if hasattr(value, "item"):
        number = value.item()
        return number if not isinstance(number, float) or math.isfinite(number) else None
    raise TypeError(f"{type(value).__name__} has no JSON form")
