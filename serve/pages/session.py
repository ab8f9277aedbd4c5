"""Who looks at a page: a session cookie that stands for a token or a person, and a secret that every form of it must carry."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from minder.record.api.access import Caller, Role
from minder.record.store.sessions import SESSION_S, Person
from serve.access import admit, demand_role, slow_down
from serve.problems import refuse
from serve.state import service_of

__all__ = [
    "Seen",
    "Sender",
    "Sent",
    "SignInNeeded",
    "Visitor",
    "csrf_of",
    "forget",
    "inside",
    "is_encrypted",
    "kept_hint",
    "read_form",
    "remember",
    "remember_hint",
    "session_secret",
]

COOKIE = "minder-session"
_HINT = "minder-id-token"
_MOST_HINT = 3800  # letters; browsers keep 4096 bytes of a cookie with its name
_MOST_FIELDS = 50


class SignInNeeded(Exception):
    """No one is signed in: the page of whom this is raised is shown after they are."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """A caller who is signed in. csrf: what its forms carry."""

    caller: Caller
    csrf: str

    @property
    def may_act(self) -> bool:
        return self.caller.role in ("operator", "admin")


def is_encrypted(connection: HTTPConnection) -> bool:
    """Whether the browser speaks TLS, to us or to a proxy before us. Who forges the header only hides its own cookie from plain HTTP."""
    return connection.url.scheme == "https" or connection.headers.get("x-forwarded-proto", "") == "https"


def _cookie_name(connection: HTTPConnection) -> str:
    return f"__Host-{COOKIE}" if is_encrypted(connection) else COOKIE


def session_secret(connection: HTTPConnection) -> str | None:
    return connection.cookies.get(_cookie_name(connection))


def remember(request: Request, response: Response, secret: str) -> None:
    """No script reads the cookie, and no other site's request carries it."""
    response.set_cookie(
        _cookie_name(request), secret, max_age=int(SESSION_S), path="/", secure=is_encrypted(request), httponly=True, samesite="strict"
    )


def forget(request: Request, response: Response) -> None:
    """The browser keeps nothing of who was signed in."""
    response.delete_cookie(_HINT, path="/sign-out", secure=is_encrypted(request), httponly=True, samesite="strict")
    response.delete_cookie(_cookie_name(request), path="/", secure=is_encrypted(request), httponly=True, samesite="strict")


def remember_hint(request: Request, response: Response, id_token: str) -> None:
    """The ID token, for the provider when its holder signs out: kept by the browser alone, which sends it to /sign-out and nowhere else.
    One that is too long for a cookie is not kept, and the provider asks who it is that signs out."""
    if len(id_token) <= _MOST_HINT:
        secure = is_encrypted(request)
        response.set_cookie(_HINT, id_token, int(SESSION_S), path="/sign-out", secure=secure, httponly=True, samesite="strict")


def kept_hint(request: Request) -> str:
    """The ID token that the browser kept; "" for none."""
    return request.cookies.get(_HINT, "")


def csrf_of(secret: str) -> str:
    """Follows from the cookie and does not lead back to it."""
    return hashlib.sha256(b"minder form\n" + secret.encode("utf-8", "surrogatepass")).hexdigest()


def _visit(request: Request) -> Visitor:
    secret, service = session_secret(request), service_of(request)
    found = None if secret is None else service.sessions.find(secret, service.clock.now_s())
    if secret is None or found is None:
        raise SignInNeeded
    caller = _person(request, found) if isinstance(found, Person) else admit(request, found)
    demand_role(caller, "viewer")
    return Visitor(caller, csrf_of(secret))


def _person(request: Request, found: Person) -> Caller:
    """Who signed in with the identity provider. What began under other terms is over: another provider, or other roles."""
    flow = service_of(request).code_flow
    if flow is None or flow.settings.terms != found.terms:
        raise SignInNeeded
    slow_down(service_of(request).requests.take(found.token), request)
    role = cast(Role, found.role)
    return Caller(token=found.token, name=found.name, role=role, jobs=found.jobs, issuer=found.issuer, subject=found.subject)


Seen = Annotated[Visitor, Depends(_visit)]


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form, each once. 422 for files and for more than it could have."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise refuse(415, "this takes a form as a browser sends it")
    async with request.form(max_fields=_MOST_FIELDS, max_files=0) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}


@dataclass(frozen=True, slots=True)
class Sender:
    """A person who sends a form of ours."""

    visitor: Visitor
    fields: dict[str, str]


def inside(wanted: str) -> str:
    """A path of this service; anything else is the first page: a browser is never sent elsewhere."""
    plain = wanted.startswith("/") and not wanted.startswith(("//", "/\\")) and wanted.isprintable() and "\\" not in wanted
    return wanted if plain and len(wanted) < 1000 else "/"


async def _send(request: Request, visitor: Seen, fields: Annotated[dict[str, str], Depends(read_form)]) -> Sender:
    if not hmac.compare_digest(fields.get("csrf", "").encode(), visitor.csrf.encode()):
        raise refuse(403, "this form is not of your session: go back, load the page again and send it once more")
    request.state.sent = fields
    return Sender(visitor, fields)


Sent = Annotated[Sender, Depends(_send)]
