"""Every error is one problem document (RFC 9457): what is wrong, where, and how to mend it. Nothing of a stack, nothing of the input."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.responses import JSONResponse, Response

from minder.model.errors import BadInputError, LedgerError
from minder.record.api.problem import MEDIA_TYPE, Problem

__all__ = ["PageMaker", "add_problems", "first_error", "problem", "refuse"]

# (request, status, detail, headers) -> the answer for a person who looks at a page
PageMaker = Callable[[Request, int, str, Mapping[str, str]], Response]

_log = logging.getLogger("minder.serve")
_MOST_TOLD = 300
_NOT_OURS = {404: "there is no such path: /v1/openapi.json has all", 405: "this path does not take this method: see /v1/openapi.json"}


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """One problem document as a response."""
    line = " ".join(detail.split())
    body = Problem(title=HTTPStatus(status).phrase, status=status, detail=line)
    return JSONResponse(body.model_dump(), status, dict(headers or {}) | {"Cache-Control": "no-store"}, MEDIA_TYPE)


def refuse(status: int, detail: str, **headers: str) -> HTTPException:
    """An error to raise; Retry_After becomes Retry-After."""
    return HTTPException(status, detail, {name.replace("_", "-"): value for name, value in headers.items()} or None)


def add_problems(app: FastAPI, page: PageMaker) -> None:
    """Handlers for everything that a route may raise. page: says the same outside of /v1, to a reader."""
    app.state.error_page = page
    app.add_exception_handler(StarletteHTTPException, _http)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(BadInputError, _bad_input)
    app.add_exception_handler(LedgerError, _ledger)
    app.add_exception_handler(Exception, _bug)


def _say(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    if request.url.path.startswith("/v1"):
        return problem(status, detail, headers)
    page: PageMaker = request.app.state.error_page
    return page(request, status, detail, headers or {})


def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, StarletteHTTPException)
    plain = error.detail == HTTPStatus(error.status_code).phrase
    detail = _NOT_OURS.get(error.status_code, error.detail) if plain else error.detail
    return _say(request, error.status_code, str(detail), error.headers)


def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _say(request, 422, first_error(error.errors()))


def first_error(errors: Sequence[Any]) -> str:
    """The first of pydantic's errors in one line, without the input it was about."""
    where = ".".join(str(part) for part in errors[0]["loc"])
    said = str(errors[0]["msg"]).removeprefix("Value error, ")
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    plain = f"{where[:_MOST_TOLD]}: {said[:_MOST_TOLD]}{more}"
    return plain.encode("ascii", "backslashreplace").decode()


def _bad_input(request: Request, error: Exception) -> Response:
    return _say(request, 422, str(error))


def _ledger(request: Request, error: Exception) -> Response:
    """The ledger is away: nothing was done, and nothing can be said."""
    _log.error("%s %s: %s", request.method, request.url.path, error)
    return _say(request, 503, str(error), {"Retry-After": "5"})


def _bug(request: Request, error: Exception) -> Response:
    """Not foreseen: starlette raises it again behind this answer, so that the log has all of it."""
    return _say(request, 500, "the service failed at this request; its log says why")
