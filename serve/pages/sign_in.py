"""In with a token, and out again. The page offers the identity provider too, where there is one (provider.py)."""

from __future__ import annotations

import hmac
import secrets
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request
from starlette.responses import RedirectResponse, Response

from minder.record.api.access import Caller
from serve.access import admit, demand_role, demand_token
from serve.identity.code_flow import SignInError
from serve.pages.render import show
from serve.pages.session import Sent, forget, inside, is_encrypted, kept_hint, read_form, remember, session_secret
from serve.state import service_of

__all__ = ["router", "sign_in_page"]

router = APIRouter()
_NONCE = "minder-sign-in"
_NONCE_S = 3600


@router.get("/sign-in")
def ask(request: Request, next: str = "/") -> Response:
    """The form; its secret is in a cookie too, so that no other site can sign anybody in."""
    return sign_in_page(request, next)


def sign_in_page(request: Request, wanted: str, status: int = 200, wrong: str = "", left: str = "") -> Response:
    """Both ways in, and why the last one failed. left: what became of signing out at the provider."""
    nonce, flow = secrets.token_urlsafe(24), service_of(request).code_flow
    provider = None if flow is None else flow.client
    answer = show(request, None, "sign_in.html", status, nonce=nonce, wanted=inside(wanted), wrong=wrong, left=left, provider=provider)
    answer.set_cookie(_NONCE, nonce, max_age=_NONCE_S, path="/sign-in", secure=is_encrypted(request), httponly=True, samesite="strict")
    return answer


@router.post("/sign-in")
def sign_in(request: Request, fields: Annotated[dict[str, str], Depends(read_form)]) -> Response:
    """A session for who has a token of a person's role. The token itself is kept nowhere."""
    wanted = inside(fields.get("next", "/"))
    nonce = request.cookies.get(_NONCE, "")
    if not nonce or not hmac.compare_digest(fields.get("csrf", "").encode(), nonce.encode()):
        return sign_in_page(request, wanted, 403, "this form had grown old: please try again")
    service = service_of(request)
    try:
        record = demand_token(request, fields.get("token", "").strip())
        demand_role(admit(request, record), "viewer")
    except HTTPException as error:
        return sign_in_page(request, wanted, error.status_code, str(error.detail).partition(": send")[0])
    before = session_secret(request)
    if before is not None:
        service.sessions.end(before)
    answer = RedirectResponse(wanted, 303, {"Cache-Control": "no-store"})
    remember(request, answer, service.sessions.begin(record.id, service.clock.now_s()))
    answer.delete_cookie(_NONCE, path="/sign-in")
    return answer


@router.post("/sign-out")
def sign_out(request: Request, sent: Sent) -> Response:
    """Ends the session here and in the database, and at the provider where it began there and the site wishes so."""
    service_of(request).sessions.end(session_secret(request) or "")
    answer = _out(request, sent.visitor.caller)
    answer.headers.update({"Cache-Control": "no-store", "Clear-Site-Data": '"cache"'})
    forget(request, answer)
    return answer


def _out(request: Request, caller: Caller) -> Response:
    """A page that goes on to the provider by itself: a form may not be answered with a way to another site."""
    flow = service_of(request).code_flow
    if flow is None or caller.issuer is None or not flow.client.sign_out_there:
        return RedirectResponse("/sign-in", 303)
    try:
        return show(request, None, "again.html", wanted=flow.leave(kept_hint(request)))
    except SignInError as error:
        return sign_in_page(request, "/", left=f"{error}: you are signed out here, and perhaps not there")
