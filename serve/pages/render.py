"""Templates become answers. Everything is escaped; no page may run a script that is not a file of ours, or load anything from elsewhere."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from minder import __version__
from minder.clock import format_time, parse_time
from minder.incidents.spans import format_span
from minder.incidents.timeline import describe
from minder.plots.excerpt import describe_panel, draw_panel
from serve.pages.session import Visitor
from serve.pages.words import cause_words, clock_words, phase_words, pretty, state_words
from serve.state import service_of

__all__ = ["CONTENT_POLICY", "NAVIGATION", "fragment", "show"]

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
_GUARDS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Referrer-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
}
NAVIGATION = (
    ("/", "Fleet"),
    ("/incidents", "Incidents"),
    ("/machines", "Machines"),
    ("/standbys", "Standbys"),
    ("/pauses", "Pauses"),
    ("/policy", "Policy"),
    ("/models", "Models"),
    ("/audit", "Audit"),
)
_FOLDER = Path(__file__).parent.parent / "templates"


def _environment() -> Environment:
    found = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {
        "in_words": describe,
        "pretty": pretty,
        "span": format_span,
        "clock": clock_words,
        "iso": format_time,
        "seconds": parse_time,
        "cause": cause_words,
        "phase": phase_words,
        "state": state_words,
        "panel": lambda excerpt, metric: Markup(draw_panel(excerpt, metric)),  # its words are escaped where they are put in
        "panel_words": describe_panel,
    }
    found.globals |= {"version": __version__, "navigation": NAVIGATION}
    found.globals["m"] = found.get_template("macros.html").module
    return found


_TEMPLATES = _environment()


def show(request: Request, visitor: Visitor | None, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page. It holds keys for its forms, so no browser keeps it."""
    body = _render(request, visitor, template, values)
    return HTMLResponse(body, status, {**_GUARDS, "Cache-Control": "no-store"})


def fragment(request: Request, visitor: Visitor, template: str, **values: Any) -> Response:
    """A part of a page that is polled: with an ETag, and a 304 for who has it."""
    body = _render(request, visitor, template, values).encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**_GUARDS, "ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in [item.strip().removeprefix("W/") for item in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return HTMLResponse(body, headers=headers)


def _render(request: Request, visitor: Visitor | None, template: str, values: Mapping[str, Any]) -> str:
    return _TEMPLATES.get_template(template).render(
        visitor=visitor, here=request.url.path, now_s=service_of(request).clock.now_s(), new_key=lambda: secrets.token_urlsafe(18), **values
    )
