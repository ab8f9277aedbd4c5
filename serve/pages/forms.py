"""Forms do what the routes of /v1 do, with the same checks, once, however often they are sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlencode

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.responses import RedirectResponse, Response

from minder.record.incidents.timeline import describe
from minder.record.store.answers import AnswerKey
from minder.record.store.events import EventQuery
from serve.access import demand_role, sees
from serve.actions import Action, Planned
from serve.pages.session import Sender, Visitor, inside
from serve.problems import first_error, refuse
from serve.state import service_of

__all__ = ["action_of", "body_of", "carry_out", "did", "go_back"]

Body = TypeVar("Body", bound=BaseModel)
_OURS = ("csrf", "key", "back")


def body_of(model: type[Body], fields: dict[str, Any]) -> Body:
    """The request that a form stands for; an empty field is one that was not given. 422 for what does not hold."""
    try:
        return model.model_validate({name: value for name, value in fields.items() if value != "" and value is not None})
    except ValidationError as error:
        raise refuse(422, first_error(error.errors())) from None


def carry_out(request: Request, sent: Sender, plan: Callable[[], tuple[Sequence[Planned], str]]) -> Response:
    """Back to the page that the form was on, which then says what was done. 403 for who may not."""
    return go_back(sent, action_of(request, sent).perform(plan))


def action_of(request: Request, sent: Sender) -> Action:
    """The form's action, by its key. 403 for who may not act."""
    caller, key = sent.visitor.caller, sent.fields.get("key", "")
    demand_role(caller, "operator")
    if not (key.isascii() and key.isprintable() and 0 < len(key) <= 255):
        raise refuse(422, "this form has no key: go back, load the page again and send it once more")
    body = json.dumps(sorted((name, value) for name, value in sent.fields.items() if name not in _OURS))
    digest = hashlib.sha256(f"{request.url.path}\n{body}".encode("utf-8", "surrogatepass")).hexdigest()
    route = getattr(request.scope.get("route"), "path", "?")
    return Action(service_of(request), caller, AnswerKey(caller.token, key, digest), route)


def go_back(sent: Sender, answer: Response) -> Response:
    """To the page that the form was on; it says what the action has written."""
    events = json.loads(bytes(answer.body))["events"]
    back = inside(sent.fields.get("back", "/"))
    return RedirectResponse(f"{back}{'&' if '?' in back else '?'}{urlencode({'did': events[0]})}", 303, {"Cache-Control": "no-store"})


def did(request: Request, visitor: Visitor) -> str:
    """What the form that led here has written, out of the ledger: no link can make a page say what was not done."""
    given = request.query_params.get("did", "")
    if not (given.isascii() and given.isdigit() and len(given) <= 15):
        return ""
    event_id = int(given)
    found = service_of(request).events.select(EventQuery(since_id=event_id - 1, limit=1))
    own = [event for event in found if event.id == event_id and event.payload.get("token") == visitor.caller.token]
    return describe(own[0]) if own and sees(visitor.caller, own[0].job) else ""
