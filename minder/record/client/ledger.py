"""The ledger of a service, read as if it were here: the same questions as minder.record.incidents.Ledger, asked over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType

from minder.model.clock import format_time
from minder.model.history import Approval, LedgerEvent
from minder.record.api.incidents import Event
from minder.record.client.client import Client
from minder.record.incidents import Incident, fold_incident, kinds
from minder.record.incidents.approvals import APPROVAL_KINDS, Answer, find_approval, fold_approvals

__all__ = ["RemoteLedger"]


class RemoteLedger:
    """Reads only; what is written goes through `client`, which says who and why. Closing it closes the client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> RemoteLedger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def events(
        self, *, job: str | None = None, incident: str | None = None, kinds: Sequence[str] | None = None, limit: int | None = None
    ) -> list[LedgerEvent]:
        """Oldest first, as far as the token's jobs go. What was captured is left out of evidence: see `captures`."""
        return [_event(item) for item in self.client.events(job=job, incident=incident, kinds=kinds, limit=limit)]

    def approvals(self, job: str | None = None) -> list[Approval]:
        """As Ledger.approvals."""
        return fold_approvals(self.events(job=job, kinds=APPROVAL_KINDS))

    def answer_approval(self, operation_id: str, answer: Answer, *, by: str, reason: str) -> Approval:
        """As Ledger.answer_approval, but the service writes down the token's name instead of `by`."""
        find_approval(self.approvals(), operation_id)
        (self.client.approve if answer == "approved" else self.client.reject)(operation_id, reason)
        return find_approval(self.approvals(), operation_id)

    def captures(self, incident: str) -> list[LedgerEvent]:
        """The evidence of an incident with all that was captured."""
        found = enumerate(self.client.captures(incident), start=1)
        return [
            LedgerEvent(number, 0.0, kinds.EVIDENCE, None, incident, None, {"machine": item.machine, "what": item.what, "data": item.data})
            for number, item in found
        ]

    def vendor_bundle(self, incident: str) -> bytes:
        """The ZIP that the service makes: it alone has the captures and the job's machines."""
        return self.client.bundle(incident)

    def incident(self, incident: str) -> Incident:
        """Raises BadInputError where there is none, or the token does not cover its job."""
        self.client.incident(incident)  # says it in the service's own words
        return fold_incident(self.events(incident=incident))

    def incidents(self, *, job: str | None = None, since_s: float | None = None, state: str | None = None) -> list[Incident]:
        """As Ledger.incidents."""
        since = None if since_s is None else format_time(since_s)
        grouped: dict[str, list[LedgerEvent]] = {}
        for item in self.client.events(job=job, incidents_since=since or "1970-01-01T00:00:00Z"):
            grouped.setdefault(str(item.incident), []).append(_event(item))
        folded = [fold_incident(events) for events in grouped.values()]
        return [item for item in folded if state is None or item.state == state or (state == "open" and item.state != "closed")]


def _event(item: Event) -> LedgerEvent:
    return LedgerEvent(item.id, item.time_s, item.kind, item.job, item.incident, item.operation_id, item.data)
