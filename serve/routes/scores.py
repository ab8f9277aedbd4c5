"""Score an upload: what minder would have concluded, and when. Nothing is written to the ledger, nothing is acted on."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from minder.api.fields import JobName
from minder.api.scores import PARTS, ScoreRequest, ScoreResult
from minder.clock import parse_time
from minder.errors import BadInputError
from serve.access import Viewer
from serve.problems import refuse
from serve.scoring.pool import Busy, Order
from serve.scoring.receive import BODY_TYPES, receive
from serve.state import service_of

__all__ = ["router"]

router = APIRouter(prefix="/v1/scores", tags=["scores"])
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PARTS = {"type": "object", "properties": {name: {"type": "string", "format": "binary"} for name in PARTS}, "required": ["job"]}
_CONTENT: dict[str, Any] = {kind: _BINARY for kind in BODY_TYPES if kind != "application/json"} | {
    "application/json": {"schema": ScoreRequest.model_json_schema(ref_template="#/components/schemas/{model}")},
    "multipart/form-data": {"schema": _PARTS},
}


@router.post("", openapi_extra={"requestBody": {"required": True, "content": _CONTENT}})
async def score(
    request: Request,
    caller: Viewer,
    name: Annotated[JobName, Query(description="What the verdicts call the recording.")] = "upload",
    until: Annotated[str | None, Query(max_length=40, description="Only what was known at this time (ISO 8601, inclusive).")] = None,
) -> ScoreResult:
    """The verdict lines of `minder replay` for a table (Parquet, Arrow), a JSON document, or the files of a recording (multipart)."""
    service = service_of(request)
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="minder-upload-"))
    outcome = "failed"
    try:
        order = Order(folder, name, _until(until))
        outcome = "refused"
        await receive(request, folder)
        found = await service.scoring.score(order)
        outcome = "scored"
        return ScoreResult.model_validate(found)
    except Busy as error:
        raise refuse(429, str(error), Retry_After="10") from error
    except BadInputError as error:
        raise refuse(422, str(error)) from error
    finally:
        service.metrics.uploads.labels(outcome).inc()
        await asyncio.to_thread(shutil.rmtree, folder, True)


def _until(until: str | None) -> float | None:
    try:
        return None if until is None else parse_time(until)
    except (ValueError, OverflowError):
        raise refuse(422, "until is no time: give ISO 8601, like 2026-03-02T06:12:31Z") from None
