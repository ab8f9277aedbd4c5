"""What went wrong, for a reader: the same line that /v1 answers with, and what was typed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import quote

from fastapi import Request
from starlette.responses import RedirectResponse, Response

from serve.pages.render import show

__all__ = ["error_page", "sign_in_first"]

_CARRIED = ("csrf", "key", "back")
_OF_PROGRAMS = re.compile(r": GET /v1/\S+ lists all$")  # a reader has the pages for it
_MISSING = "there is no such page"


def error_page(request: Request, status: int, detail: str, headers: Mapping[str, str]) -> Response:
    """Never cached, and never a page that looks as if all were well."""
    line = _MISSING if status == 404 and "/v1/openapi.json" in detail else _OF_PROGRAMS.sub("", " ".join(detail.split()))
    typed = [(name, value) for name, value in getattr(request.state, "sent", {}).items() if name not in _CARRIED and value]
    answer = show(request, None, "error.html", status, title=HTTPStatus(status).phrase, status_code=status, detail=line, sent=typed)
    answer.headers.update({name: value for name, value in headers.items() if name.lower() != "www-authenticate"})
    return answer


def sign_in_first(request: Request, error: Exception) -> Response:
    """To the sign-in page, and back. A link from elsewhere comes without the cookie: the page asks for itself once more."""
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.headers.get("hx-request") == "true":
        return Response(status_code=401, headers={"HX-Redirect": "/sign-in", "Cache-Control": "no-store"})
    if request.method == "GET" and request.headers.get("sec-fetch-site") == "cross-site":
        return show(request, None, "again.html", wanted=wanted)
    to = f"/sign-in?next={quote(wanted, safe='')}" if request.method == "GET" else "/sign-in"
    return RedirectResponse(to, 303, {"Cache-Control": "no-store"})
