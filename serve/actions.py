"""Actions: each needs an Idempotency-Key, lands in the ledger with who and why, and is done once however often it is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request
from starlette.responses import Response

from minder.model.history import LedgerEvent
from minder.record.api.access import Caller
from minder.record.api.incidents import Recorded
from minder.record.store.answers import Answer, AnswerKey
from minder.record.store.events import EventRow
from serve.access import AnyCaller
from serve.problems import refuse
from serve.state import Service, service_of

__all__ = ["Act", "Action", "Planned"]

_KEY = Header(alias="Idempotency-Key", min_length=1, max_length=255, pattern=r"^[\x21-\x7e]+$", description="Any new word, such as a UUID.")


@dataclass(frozen=True, slots=True)
class Planned:
    """An event that an action is about to write."""

    kind: str
    payload: dict[str, Any]
    job: str | None = None
    incident: str | None = None
    operation_id: str | None = None


@dataclass(frozen=True, slots=True)
class Action:
    """One request for an action. `perform` does it, or answers as it did the first time."""

    service: Service
    caller: Caller
    key: AnswerKey
    route: str

    def perform(self, plan: Callable[[], tuple[Sequence[Planned], str]]) -> Response:
        """`plan` checks the request (it raises where that does not hold) and says which events to write and what that means."""
        earlier = self.service.answers.find(self.key)
        if earlier is not None:
            return _reply(earlier, first=False)
        planned, detail = plan()
        now_s = self.service.clock.now_s()
        rows = [self._row(item, now_s) for item in planned]

        def tell(events: Sequence[LedgerEvent]) -> str:
            return Recorded(events=tuple(event.id for event in events), detail=detail).model_dump_json()

        answer, first = self.service.answers.act(self.key, rows, now_s, 201, tell)
        if first:
            self.service.metrics.actions.labels(self.route).inc()
        return _reply(answer, first)

    def _row(self, item: Planned, now_s: float) -> EventRow:
        payload = item.payload | self.caller.signature()
        text = json.dumps(payload, allow_nan=False, separators=(",", ":"))
        return EventRow(now_s, item.kind, text, item.job, item.incident, item.operation_id)


def _reply(answer: Answer, first: bool) -> Response:
    if not answer.same_request:
        raise refuse(422, "this Idempotency-Key was used for another request: take a new one")
    headers = {"Cache-Control": "no-store"} | ({} if first else {"Idempotent-Replayed": "true"})
    return Response(answer.body, answer.status, headers, "application/json")


async def _action(request: Request, caller: AnyCaller, key: Annotated[str, _KEY]) -> Action:
    body = await request.body()
    parts = [request.method.encode(), request.url.path.encode(), body, *([request.url.query.encode()] if request.url.query else [])]
    digest = hashlib.sha256(b"\n".join(parts)).hexdigest()
    route = getattr(request.scope.get("route"), "path", "?")
    return Action(service_of(request), caller, AnswerKey(caller.token, key, digest), route)


Act = Annotated[Action, Depends(_action)]
