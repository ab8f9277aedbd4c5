"""The service as an ASGI application: routes, guards, and what runs while it does."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import AsyncIterator, Callable

from fastapi import APIRouter, Depends, FastAPI
from starlette.routing import BaseRoute

from minder import __version__
from minder.model.errors import LedgerError
from minder.record.api.problem import MEDIA_TYPE
from serve.contract import complete
from serve.guards import BodyBounds, Measured
from serve.pages import add_pages, add_rooms
from serve.pages.errors import error_page
from serve.parameters import operation_id, refuse_unknown
from serve.problems import add_problems
from serve.routes import (
    decisions,
    events,
    health,
    incidents,
    jobs,
    machine_telemetry,
    machines,
    maintenance,
    pauses,
    policy,
    score_sessions,
    scores,
    signals,
    skips,
    standbys,
    track_record,
    updates,
)
from serve.state import Service
from serve.watching.watchers import Watchers

__all__ = ["build_app"]

_ABOUT = (
    "Scores uploads, and shows what the ledger knows: incidents, decisions, machines, jobs, pauses. Every call but health and readiness "
    "needs a bearer token. Every action needs an Idempotency-Key and is written to the ledger with who and why. "
    "Errors are application/problem+json."
)
_STATUSES = (400, 401, 403, 404, 408, 409, 413, 415, 422, 429, 503)
_PROBLEMS: dict[int | str, dict[str, object]] = {
    status: {"description": "See detail.", "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for status in _STATUSES
}


def build_app(service: Service, past_is_read: Callable[[], None] = lambda: None) -> FastAPI:
    """The application of an open service; closing the service is the caller's. past_is_read: called once the ledger's past is in memory."""

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        following = asyncio.create_task(service.tail.follow())
        service.reading_past = True
        reader = threading.Thread(target=_read_past, args=(service, past_is_read), name="past", daemon=True)
        reader.start()  # the end waits for no long ledger
        watching = asyncio.create_task(Watchers(service).run())
        service.outboxes.start()
        try:
            yield
        finally:
            for task in (following, watching):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await service.scoring.close()
            await asyncio.to_thread(service.scored.close)
            await asyncio.to_thread(service.outboxes.stop)

    app = FastAPI(
        title="minder",
        version=__version__,
        description=_ABOUT,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would be built from whatever Host the caller names
        lifespan=lifespan,
    )
    app.state.service = service
    app.router.routes.extend(_routes())
    add_pages(app)
    add_problems(app, error_page)
    app.add_middleware(BodyBounds, limits=service.settings.limits)
    app.add_middleware(Measured, metrics=service.metrics)
    app.openapi = complete(app.openapi)  # type: ignore[method-assign]
    return app


@functools.cache
def _routes() -> list[BaseRoute]:
    """Of all rooms, once a process: what a call may hold is worked out for each when the first comes, which costs a tenth of a second."""
    every = APIRouter()
    for room in (
        health,
        incidents,
        events,
        machines,
        machine_telemetry,
        decisions,
        pauses,
        maintenance,
        jobs,
        policy,
        scores,
        score_sessions,
        signals,
        standbys,
        track_record,
        updates,
        skips,
    ):
        every.include_router(
            room.router, responses=_PROBLEMS, dependencies=[Depends(refuse_unknown)], generate_unique_id_function=operation_id
        )
    add_rooms(every)
    return every.routes


def _read_past(service: Service, is_read: Callable[[], None]) -> None:
    """So that no page has to. Where the ledger cannot be read now, each request says so."""
    try:
        with contextlib.suppress(LedgerError):
            service.read_past()
            is_read()
    finally:
        service.reading_past = False
