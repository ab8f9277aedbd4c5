"""In with the site's identity provider: the browser is sent there, and comes back with a code."""

from __future__ import annotations

import json
import logging
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import RedirectResponse, Response

from minder.record.api.access import Caller
from minder.record.incidents import kinds
from minder.record.store.events import EventRow
from minder.record.store.sessions import Person
from serve.access import slow_down
from serve.identity.code_flow import BACK, CameBack, CodeFlow, SignInError
from serve.identity.pending import KEPT_S
from serve.pages.render import show
from serve.pages.session import inside, is_encrypted, remember, remember_hint, session_secret
from serve.pages.sign_in import sign_in_page
from serve.problems import refuse
from serve.state import Service, service_of

__all__ = ["router"]

router = APIRouter()
_log = logging.getLogger("minder.serve")
_COOKIE = "minder-provider"


def _cookie_name(request: Request) -> str:
    return f"__Host-{_COOKIE}" if is_encrypted(request) else _COOKIE


def _flow(request: Request) -> CodeFlow:
    found = service_of(request).code_flow
    if found is None:
        raise refuse(404, "this service has no identity provider to sign in with")
    return found


@router.get("/sign-in/provider")
def leave(request: Request, next: str = "/") -> Response:
    """To the provider, with a cookie by which the browser is known when it comes back (a strict one would not come along)."""
    flow = _flow(request)
    slow_down(service_of(request).sign_ins.take(request.client.host if request.client else "?"), request)
    try:
        to, begun = flow.begin(inside(next))
    except SignInError as error:
        return _refused(request, error, inside(next))
    answer = RedirectResponse(to, 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
    answer.set_cookie(
        _cookie_name(request), begun.browser, int(KEPT_S), path="/", secure=is_encrypted(request), httponly=True, samesite="lax"
    )
    return answer


@router.get(BACK)
def come_back(
    request: Request,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
    error: Annotated[str, Query(max_length=200)] = "",
    iss: Annotated[str | None, Query(max_length=500)] = None,
) -> Response:
    """A session for who the provider says it is. The page asks for itself once more, since this request came from elsewhere."""
    flow, service = _flow(request), service_of(request)
    came = CameBack(state, request.cookies.get(_cookie_name(request), ""), code, error, iss)
    try:
        signed_in = flow.finish(came)
    except SignInError as refused:
        if refused.status == 401:
            slow_down(service.failures.take(request.client.host if request.client else "?"), request)
        return _refused(request, refused, "/")
    slow_down(service.requests.take(signed_in.caller.token), request)
    before = session_secret(request)
    if before is not None:
        service.sessions.end(before)
    secret = _begin(service, flow, signed_in.caller)
    answer = show(request, None, "again.html", wanted=signed_in.wanted)
    remember(request, answer, secret)
    if flow.client.sign_out_there:
        remember_hint(request, answer, signed_in.id_token)
    answer.delete_cookie(_cookie_name(request), path="/", secure=is_encrypted(request), httponly=True, samesite="lax")
    return answer


def _begin(service: Service, flow: CodeFlow, caller: Caller) -> str:
    """The session and its event are one transaction: no sign-in goes unrecorded."""
    now_s = service.clock.now_s()
    jobs = None if caller.jobs is None else list(caller.jobs)
    signed = {"name": caller.name, "role": caller.role, "jobs": jobs} | caller.signature()
    row = EventRow(now_s, kinds.SIGNED_IN, json.dumps(signed, separators=(",", ":")))
    person = Person(
        token=caller.token,
        name=caller.name,
        role=caller.role,
        jobs=caller.jobs,
        issuer=caller.issuer or "?",
        subject=caller.subject or "?",
        terms=flow.settings.terms,
    )
    return service.sessions.begin_person(person, row, now_s, flow.client.session_s)


def _refused(request: Request, error: SignInError, wanted: str) -> Response:
    _log.warning("oidc: a sign-in was refused: %s", error)
    service_of(request).metrics.refused.labels("provider").inc()
    return sign_in_page(request, wanted, error.status, str(error))
