"""Uploads: what minder would have concluded from telemetry, and what dumps say. Nothing is written to the ledger, nothing is acted on."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request

from minder.model.clock import parse_time
from minder.model.errors import BadInputError
from minder.record.api.dumps import CollectivesResult, StacksResult
from minder.record.api.fields import JobName
from minder.record.api.scores import PARTS, ScoreResult
from serve.access import Viewer
from serve.problems import refuse
from serve.scoring.pool import Busy, Order, What
from serve.scoring.receive import BODY_TYPES, receive, receive_dumps
from serve.scoring.worker import DUMPS
from serve.state import service_of

__all__ = ["Until", "router", "until_seconds", "upload_folder"]

router = APIRouter(prefix="/v1", tags=["scores"])
Until = Annotated[str | None, Query(max_length=40, description="Only what was known at this time (ISO 8601, inclusive).")]
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PARTS = {"type": "object", "properties": {name: {"type": "string", "format": "binary"} for name in PARTS}, "required": ["job"]}
_DUMP = {"type": "object", "properties": {"dump": {"type": "array", "items": _BINARY["schema"]}}, "required": ["dump"]}
_DUMPS: dict[str, Any] = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _DUMP}}}}
_CONTENT: dict[str, Any] = {kind: _BINARY for kind in BODY_TYPES if kind != "application/json"} | {
    "application/json": {"schema": {"$ref": "#/components/schemas/ScoreRequest"}},
    "multipart/form-data": {"schema": _PARTS},
}


@router.post("/scores", openapi_extra={"requestBody": {"required": True, "content": _CONTENT}})
async def score_upload(
    request: Request,
    caller: Viewer,
    name: Annotated[JobName, Query(description="What the verdicts call the recording.")] = "upload",
    until: Until = None,
) -> ScoreResult:
    """The verdict lines of `minder replay` for a table (Parquet, Arrow), a JSON document, or the files of a recording (multipart)."""
    async with upload_folder(request) as folder:
        order = Order(folder, name, until_seconds(until))
        await receive(request, folder)
        return ScoreResult.model_validate(await service_of(request).scoring.score(order))


@router.post("/stacks", openapi_extra=_DUMPS)
async def analyse_stacks(request: Request, caller: Viewer) -> StacksResult:
    """What `minder stacks` says of these files: dumps of a hung job's processes, and processes.json, job.toml and ranks.json if there are
    any. Each is a part `dump`; its file name says whose it is, behind the folder of its capture if there are several."""
    return StacksResult.model_validate(await _analyse(request, "stacks"))


@router.post("/collectives", openapi_extra=_DUMPS)
async def analyse_collectives(request: Request, caller: Viewer) -> CollectivesResult:
    """What `minder collectives` says of these files: a Flight Recorder dump of each rank, and job.toml if there is one. Each is a part
    `dump`, whose file name ends in its rank."""
    return CollectivesResult.model_validate(await _analyse(request, "collectives"))


async def _analyse(request: Request, what: What) -> dict[str, Any]:
    async with upload_folder(request) as folder:
        await receive_dumps(request, folder / DUMPS)
        return await service_of(request).scoring.score(Order(folder, what, what=what))


@asynccontextmanager
async def upload_folder(request: Request) -> AsyncIterator[Path]:
    """A folder for one upload, gone afterwards; what cannot be read in it is refused."""
    service = service_of(request)
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="minder-upload-"))
    outcome = "failed"  # whatever else ends it, the client's going away too
    try:
        yield folder
        outcome = "scored"
    except Busy as error:
        outcome = "refused"
        raise refuse(429, str(error), Retry_After="10") from error
    except BadInputError as error:
        outcome = "refused"
        raise refuse(422, str(error)) from error
    except HTTPException:
        outcome = "refused"
        raise
    finally:
        service.metrics.uploads.labels(outcome).inc()
        await asyncio.to_thread(shutil.rmtree, folder, True)


def until_seconds(until: str | None) -> float | None:
    """Unix seconds. 422 for what is no time."""
    try:
        return None if until is None else parse_time(until)
    except (ValueError, OverflowError):
        raise refuse(422, "until is no time: give ISO 8601, like 2026-03-02T06:12:31Z") from None
