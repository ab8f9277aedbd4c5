"""An upload on its way into a folder: only names of ours become files, whatever the sender calls them."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from fastapi import Request
from starlette.datastructures import UploadFile

from minder.record.api.dumps import DUMP_NAME, MOST_DUMPS
from minder.record.api.scores import PARTS
from serve.problems import refuse
from serve.scoring.layout import ROWS

__all__ = ["BODY_TYPES", "receive", "receive_dumps", "receive_rows"]

BODY_TYPES = {
    "application/json": "upload.json",
    "application/vnd.apache.parquet": "upload.parquet",
    "application/x-parquet": "upload.parquet",
    "application/vnd.apache.arrow.file": "upload.arrow",
    "application/vnd.apache.arrow.stream": "upload.arrow",
}
_ROW_TYPES = ("application/x-ndjson", "application/jsonl", "application/ndjson")
_TEXT_PART_BYTES = 1024 * 1024
_DUMP_NAME = re.compile(DUMP_NAME)


async def receive(request: Request, folder: Path) -> None:
    """Write the request's body into `folder`. 415 for a type that is none of ours, 422 for parts that are."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind == "multipart/form-data":
        await _receive_parts(request, folder)
    elif kind in BODY_TYPES:
        await _receive_stream(request, folder / BODY_TYPES[kind])
    else:
        raise refuse(415, f"Content-Type must be one of {', '.join(BODY_TYPES)} or multipart/form-data")


async def receive_rows(request: Request, folder: Path) -> None:
    """Write rows of NDJSON into `folder` as they come. 415 for another type."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind not in _ROW_TYPES:
        raise refuse(415, "Content-Type must be application/x-ndjson: send one JSON object a line")
    await _receive_stream(request, folder / ROWS)


async def _receive_stream(request: Request, path: Path) -> None:
    with path.open("wb") as file:
        async for block in request.stream():
            await asyncio.to_thread(file.write, block)


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


async def receive_dumps(request: Request, folder: Path) -> None:
    """Write each part `dump` into `folder` under its own file name, since that says whose it is. 415 for another type than
    multipart/form-data, 422 for names that are none of a dump's."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "multipart/form-data":
        raise refuse(415, "Content-Type must be multipart/form-data: send each file as a part `dump`, like -F dump=@node-0007_pid4211.txt")
    async with request.form(max_files=MOST_DUMPS, max_fields=1) as form:
        files: dict[str, UploadFile] = {}
        for part, value in form.multi_items():
            if part != "dump" or isinstance(value, str):
                raise refuse(422, "every part must be called dump and be a file with a name")
            name = value.filename or ""
            if _DUMP_NAME.fullmatch(name) is None:
                raise refuse(422, "a file name is none of a dump's: letters, digits and _.:- behind one capture's folder at most")
            if name in files:
                raise refuse(422, f"{name} stands twice: send each file once")
            files[name] = value
        if not files:
            raise refuse(422, "there is no dump: send each file as a part `dump`")
        await asyncio.to_thread(_write_all, folder, files)


def _write_all(folder: Path, files: Mapping[str, UploadFile]) -> None:
    folder.mkdir()
    for name, value in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        _write(folder / name, value)


def _write(path: Path, value: UploadFile | str) -> None:
    if isinstance(value, str):
        path.write_text(value, encoding="utf-8", errors="replace")
        return
    with path.open("wb") as file:
        shutil.copyfileobj(value.file, file)
