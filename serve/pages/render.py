"""Templates become answers. Everything is escaped; no page may run a script that is not a file of ours, or load anything from elsewhere."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from minder import __version__
from minder.model.clock import format_time, parse_time
from minder.offline.plots.excerpt import describe_panel, describe_window, draw_panel, draw_scores, draw_window
from minder.offline.plots.pair_graph import describe_edge, describe_pairs, draw_pairs
from minder.record.incidents.spans import format_span
from minder.record.incidents.timeline import describe
from minder.record.incidents.words import action_words, cause_words, tier_words
from serve.pages.session import Visitor
from serve.pages.words import clock_words, marked, phase_words, pretty, state_words
from serve.shared_parts import Part
from serve.state import service_of

__all__ = ["CONTENT_POLICY", "NAVIGATION", "fragment", "part_answer", "shared_fragment", "show"]

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
    ("/track-record", "Track record"),
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
        "action": action_words,
        "cause": cause_words,
        "phase": phase_words,
        "state": state_words,
        "marked": marked,
        "panel": lambda excerpt, metric: Markup(draw_panel(excerpt, metric)),  # its words are escaped where they are put in
        "panel_words": describe_panel,
        "pair_graph": lambda graph: Markup(draw_pairs(graph)),
        "pair_test": describe_edge,
        "pair_words": describe_pairs,
        "window": lambda excerpt, metric: Markup(draw_window(excerpt, metric)),
        "window_words": describe_window,
        "score_panel": lambda scores, machine: Markup(draw_scores(machine, scores)),
    }
    found.globals |= {"version": __version__, "navigation": NAVIGATION, "tier_words": tier_words}
    found.globals["m"] = found.get_template("macros.html").module
    return found


_TEMPLATES = _environment()


def show(request: Request, visitor: Visitor | None, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """A whole page. It holds keys for its forms, so no browser keeps it."""
    body = _render(request, visitor, template, values)
    return HTMLResponse(body, status, {**_GUARDS, "Cache-Control": "no-store"})


def fragment(request: Request, visitor: Visitor, template: str, **values: Any) -> Response:
    """A part of a page that is polled: with an ETag, and a 304 for who has it."""
    return part_answer(request, Part.of(_render(request, visitor, template, values).encode()))


def shared_fragment(
    request: Request, key: Hashable, state: Callable[[], Hashable], template: str, values: Callable[[], Mapping[str, Any]]
) -> Response:
    """The same of a template that asks nothing about the visitor, built once for all of them. key, state: see SharedParts."""
    part = service_of(request).parts.get((template, key), state, lambda: _render(request, None, template, values()).encode())
    return part_answer(request, part)


def part_answer(request: Request, part: Part, media_type: str = "text/html") -> Response:
    """A 304 for who has it already."""
    headers = {**_GUARDS, "ETag": part.tag, "Cache-Control": "private, no-cache"}
    if part.tag in [item.strip().removeprefix("W/") for item in request.headers.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    return Response(part.body, headers=headers, media_type=media_type)


def _render(request: Request, visitor: Visitor | None, template: str, values: Mapping[str, Any]) -> str:
    return _TEMPLATES.get_template(template).render(
        visitor=visitor, here=request.url.path, now_s=service_of(request).clock.now_s(), new_key=lambda: secrets.token_urlsafe(18), **values
    )
