"""Pages for people: the same state and the same functions as the routes of /v1, shown as HTML. Nothing is loaded from elsewhere."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from serve.pages import fleet, incident, job, lists, operations, provider, sign_in, track_record
from serve.pages.errors import sign_in_first
from serve.pages.session import SignInNeeded

__all__ = ["add_pages", "add_rooms"]

_STATIC = Path(__file__).parent.parent / "static"


class _Static(StaticFiles):
    """Files that browsers may keep, and ask about again."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        answer.headers["Cache-Control"] = "public, no-cache"
        return answer


def add_rooms(router: APIRouter) -> None:
    """Pages lie beside /v1, and outside of its contract."""
    for room in (sign_in, provider, fleet, lists, incident, job, operations, track_record):
        router.include_router(room.router, include_in_schema=False)


def add_pages(app: FastAPI) -> None:
    """What pages need of an application besides their routes."""
    app.add_exception_handler(SignInNeeded, sign_in_first)
    app.mount("/static", _Static(directory=_STATIC), name="static")
