"""Scoring sessions: rows of telemetry are appended as NDJSON, and what they hold is scored. Nothing is written to the ledger."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from minder.model.clock import format_time
from minder.model.errors import BadInputError
from minder.record.api.access import Caller
from minder.record.api.fields import NAME, Page
from minder.record.api.scores import ScoreResult
from minder.record.api.sessions import RowsTaken, ScoreSession, SessionRequest
from serve.access import Viewer
from serve.problems import refuse
from serve.routes.scores import Until, until_seconds, upload_folder
from serve.scoring.pool import Order
from serve.scoring.receive import receive_rows
from serve.scoring.sessions import Session
from serve.state import Service, service_of

__all__ = ["router"]

router = APIRouter(prefix="/v1/scores/sessions", tags=["scores"])
Id = Annotated[str, Path(pattern=NAME, max_length=63, description="Id of the session.")]
After = Annotated[int | None, Query(ge=0, description="`taken` as the sender knows it; 409 where it is another: then nothing is appended.")]
_ROW = '{"timestamp": "2026-03-02T06:12:31Z", "machine": "node-1", "gpu_power_draw_watts": 512.5}\n'
_BODY: dict[str, Any] = {
    "required": True,
    "description": "One row a line, as `samples` of POST /v1/scores.",
    "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": _ROW}},
}


@router.post("", status_code=201)
async def begin_session(request: Request, caller: Viewer, body: SessionRequest) -> ScoreSession:
    """Begin a scoring session. It belongs to the token that began it, ends by itself when it is not used, and with the service."""
    service = service_of(request)
    try:
        return _shown(service, service.scored.begin(caller.token, body.name, body.job))
    except BadInputError as error:
        raise refuse(429, str(error), Retry_After="60") from error


@router.get("")
async def list_sessions(request: Request, caller: Viewer) -> Page[ScoreSession]:
    """The sessions that this token began, oldest first."""
    service = service_of(request)
    return Page[ScoreSession](items=tuple(_shown(service, item) for item in service.scored.of(caller.token)))


@router.get("/{session}")
async def show_session(request: Request, caller: Viewer, session: Id) -> ScoreSession:
    """What a session holds. 404 where it has ended."""
    service = service_of(request)
    return _shown(service, _find(service, caller, session))


@router.post("/{session}/rows", openapi_extra={"requestBody": _BODY})
async def append_rows(request: Request, caller: Viewer, session: Id, after: After = None) -> RowsTaken:
    """Append rows, one JSON object a line. At the first line that does not hold the answer is 422 with its number and the reason: the rows
    before it are kept, and it and those behind it are not."""
    service = service_of(request)
    found = _find(service, caller, session)
    async with upload_folder(request) as folder, found.turn:
        _find(service, caller, session)  # it may have been ended meanwhile
        if after is not None and after != found.taken:
            raise refuse(409, f"{found.taken} rows were taken, not {after}: send those that follow, with after={found.taken}")
        await receive_rows(request, folder)
        await asyncio.to_thread(found.lend, folder)
        read = await service.scoring.score(Order(folder, found.name, what="rows", newest_s=found.end_s))
        if len(found.machines | set(read["machines"])) > service.settings.limits.upload_machines:
            raise refuse(422, f"with these rows the session names more than {service.settings.limits.upload_machines} machines")
        await asyncio.to_thread(found.add, folder, read, service.settings.limits)
        if read["refused"] is not None:
            raise refuse(422, f"{read['refused']} ({read['added']} rows before it are kept, {found.taken} were taken in all)")
    return RowsTaken(added=read["added"], **_shown(service, found).model_dump())


@router.get("/{session}/verdicts")
async def score_session(request: Request, caller: Viewer, session: Id, until: Until = None) -> ScoreResult:
    """The verdicts of the rows that it holds now, as `POST /v1/scores` answers. Each call reads all of them again."""
    service = service_of(request)
    found = _find(service, caller, session)
    if not found.segments:
        return ScoreResult(recording=found.name, rows=0, machines=0, verdicts=(), not_judged=("the session holds no row",))
    async with upload_folder(request) as folder:
        async with found.turn:
            await asyncio.to_thread(found.copy, folder)
        return ScoreResult.model_validate(await service.scoring.score(Order(folder, found.name, until_seconds(until))))


@router.delete("/{session}", status_code=204)
async def end_session(request: Request, caller: Viewer, session: Id) -> Response:
    """End a session; its rows are gone."""
    service = service_of(request)
    found = _find(service, caller, session)
    async with found.turn:
        await asyncio.to_thread(service.scored.end, found)
    return Response(status_code=204)


def _find(service: Service, caller: Caller, name: str) -> Session:
    found = service.scored.find(caller.token, name)
    if found is None:
        raise refuse(404, f'no scoring session "{name}" of this token: it has ended, or the service started anew; begin another')
    return found


def _shown(service: Service, session: Session) -> ScoreSession:
    begin_s, end_s = session.begin_s, session.end_s
    return ScoreSession(
        id=session.id,
        name=session.name,
        taken=session.taken,
        rows=session.rows,
        machines=tuple(sorted(session.machines)),
        begin=None if begin_s is None else format_time(begin_s),
        end=None if end_s is None else format_time(end_s),
        idle_s=round(service.scored.idle_s(session), 1),
        ends_after_s=service.settings.limits.score_session_idle_s,
    )
