"""An upload on its way into a folder: only names of ours become files, whatever the sender calls them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from fastapi import Request
from starlette.datastructures import UploadFile

from minder.api.scores import PARTS
from serve.problems import refuse

__all__ = ["BODY_TYPES", "receive"]

BODY_TYPES = {
    "application/json": "upload.json",
    "application/vnd.apache.parquet": "upload.parquet",
    "application/x-parquet": "upload.parquet",
    "application/vnd.apache.arrow.file": "upload.arrow",
    "application/vnd.apache.arrow.stream": "upload.arrow",
}
_TEXT_PART_BYTES = 1024 * 1024


async def receive(request: Request, folder: Path) -> None:
    """Write the request's body into `folder`. 415 for a type that is none of ours, 422 for parts that are."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "multipart/form-data":
        await _receive_parts(request, folder)
    elif kind in BODY_TYPES:
        with (folder / BODY_TYPES[kind]).open("wb") as file:
            async for block in request.stream():
                await asyncio.to_thread(file.write, block)
    else:
        raise refuse(415, f"Content-Type must be one of {', '.join(BODY_TYPES)} or multipart/form-data")


async def _receive_parts(request: Request, folder: Path) -> None:
    async with request.form(max_files=len(PARTS), max_fields=len(PARTS), max_part_size=_TEXT_PART_BYTES) as form:
        for part, value in form.multi_items():
            if part not in PARTS:
                raise refuse(422, f"a part has a name that is none of {', '.join(PARTS)}: each is one file of a recording")
            path = folder / PARTS[part]
            if path.exists():
                raise refuse(422, f'part "{part}" stands twice: send each once')
            await asyncio.to_thread(_write, path, value)
    if not (folder / PARTS["job"]).exists():
        raise refuse(422, 'part "job" is missing: send the recording\'s job.toml as `-F job=@job.toml`')


def _write(path: Path, value: UploadFile | str) -> None:
    if isinstance(value, str):
        path.write_text(value, encoding="utf-8", errors="replace")
        return
    with path.open("wb") as file:
        shutil.copyfileobj(value.file, file)
