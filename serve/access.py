"""Who calls, what the caller may do, and to which jobs. Every route but health and readiness asks for a token."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from minder.model.clock import format_time
from minder.model.errors import LedgerError
from minder.record.api.access import Caller, Role, contains
from minder.record.store.tokens import TokenRecord
from minder.wire.contact_log import RefusedCallers
from serve.identity.certificates import certified_names
from serve.identity.oidc import Oidc, RefusedTokenError, looks_foreign
from serve.problems import refuse
from serve.state import Service, service_of

__all__ = [
    "Admin",
    "AnyCaller",
    "Operator",
    "Viewer",
    "admit",
    "authenticate_again",
    "demand_fleet",
    "demand_job",
    "demand_role",
    "demand_token",
    "sees",
    "slow_down",
]

_refused = RefusedCallers(logging.getLogger("minder.serve"))
_bearer = HTTPBearer(auto_error=False, description="A token that `minder token create` made.")


def authenticate(request: Request, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> Caller:
    """The caller whom the bearer token names. 401 without a valid one, 429 for too many requests."""
    token = None if given is None else given.credentials
    oidc = service_of(request).oidc
    if oidc is not None and token is not None and looks_foreign(token):
        return _admit_foreign(request, oidc, token)
    caller = admit(request, demand_token(request, token))
    _demand_certificate(request, caller)
    return caller


def _admit_foreign(request: Request, oidc: Oidc, token: str) -> Caller:
    service = service_of(request)
    try:
        caller = oidc.verify(token)
    except RefusedTokenError as error:
        if error.unavailable:
            raise refuse(503, str(error), Retry_After="15") from None
        slow_down(service.failures.take(request.client.host if request.client else "?"), request)
        service.metrics.refused.labels("token").inc()
        _note_refused(request, "token")
        raise refuse(401, str(error), WWW_Authenticate="Bearer") from None
    slow_down(service.requests.take(caller.token), request)
    return caller


def _demand_certificate(request: Request, caller: Caller) -> None:
    """Where machines have certificates, a stolen token of one is worth nothing without the key."""
    if caller.machine is not None and service_of(request).settings.certified_machines and caller.machine not in certified_names(request):
        service_of(request).metrics.refused.labels("certificate").inc()
        _note_refused(request, "certificate")
        raise refuse(403, f"the token of {caller.name} speaks for {caller.machine}: call with that machine's client certificate")


def _note_refused(request: Request, why: str) -> None:
    _refused.note(request.client.host if request.client else "?", why, request.url.path)


def demand_token(request: Request, given: str | None) -> TokenRecord:
    """The record of a valid token. 401 for any other, 429 for too many of those from one address."""
    service = service_of(request)
    record = None if given is None else service.tokens.find(given)
    if record is None or not record.is_valid(service.clock.now_s()):
        slow_down(service.failures.take(request.client.host if request.client else "?"), request)
        service.metrics.refused.labels("token").inc()
        _note_refused(request, "token")
        why = "revoked or expired" if record is not None else "wrong" if given is not None else "missing"
        detail = f"the token is {why}: send `Authorization: Bearer TOKEN`; `minder token create` makes one"
        raise refuse(401, detail, WWW_Authenticate="Bearer")
    return record


def admit(request: Request, record: TokenRecord) -> Caller:
    """Whom a valid token speaks for. 429 for too many requests of it."""
    slow_down(service_of(request).requests.take(record.id), request)
    return _caller(record)


def authenticate_again(service: Service, header: str | None) -> bool:
    """Whether the token of a long answer is still valid; it is where that cannot be read."""
    token = (header or "").partition(" ")[2].strip()
    if service.oidc is not None and looks_foreign(token):
        try:
            return bool(service.oidc.verify(token))
        except RefusedTokenError as error:
            return error.unavailable
    try:
        record = service.tokens.find(token)
    except LedgerError:
        return True
    return record is not None and record.is_valid(service.clock.now_s())


def slow_down(wait_s: float, request: Request) -> None:
    """429 where a bucket says to wait."""
    if wait_s > 0:
        service_of(request).metrics.refused.labels("rate").inc()
        _note_refused(request, "rate")
        raise refuse(429, f"too many requests: try again in {math.ceil(wait_s)} s", Retry_After=str(math.ceil(wait_s)))


def _caller(record: TokenRecord) -> Caller:
    expires = None if record.expires_s is None else format_time(record.expires_s)
    role = cast(Role, record.role)
    return Caller(token=record.id, name=record.name, role=role, jobs=record.jobs, machine=record.machine, expires=expires)


def _demand(role: str) -> Callable[[Caller], Caller]:
    def check(caller: Annotated[Caller, Depends(authenticate)]) -> Caller:
        demand_role(caller, role)
        return caller

    return check


def demand_role(caller: Caller, role: str) -> None:
    """403 unless the caller may do what this role may."""
    if not contains(caller.role, role):
        raise refuse(403, f"this needs a token of role {role}; {caller.name} has role {caller.role}")


AnyCaller = Annotated[Caller, Depends(authenticate)]
Viewer = Annotated[Caller, Depends(_demand("viewer"))]
Operator = Annotated[Caller, Depends(_demand("operator"))]
Admin = Annotated[Caller, Depends(_demand("admin"))]


def sees(caller: Caller, job: str | None) -> bool:
    """Whether something of this job may be shown to the caller; what belongs to no job is for unscoped tokens only."""
    return caller.jobs is None or job in caller.jobs


def demand_job(caller: Caller, job: str | None) -> None:
    """403 unless the caller's token covers the job."""
    if not sees(caller, job):
        raise refuse(
            403, f"the token of {caller.name} is for {', '.join(caller.jobs or ()) or 'no job'}: this concerns {job or 'no single job'}"
        )


def demand_fleet(caller: Caller, what: str) -> None:
    """403 unless the caller's token covers every job."""
    if caller.jobs is not None:
        raise refuse(403, f"{what} concerns every job: the token of {caller.name} is for {', '.join(caller.jobs) or 'no job'} only")
