"""Reads that pages poll get an ETag, lists a cursor."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fastapi import Request
from pydantic import BaseModel
from starlette.responses import Response

from serve.problems import refuse

__all__ = ["cursor_id", "tagged"]


def tagged(request: Request, answer: BaseModel) -> Response:
    """The answer with its ETag; 304 where the caller has it already."""
    body = answer.model_dump_json().encode()
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if tag in _tags(request.headers.getlist("if-none-match")):
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type="application/json")


def _tags(given: Sequence[str]) -> set[str]:
    return {tag.strip().removeprefix("W/") for line in given for tag in line.split(",")}


def cursor_id(cursor: str | None) -> int | None:
    """The event id that a cursor of ours stands for. 422 for anything else."""
    if cursor is None:
        return None
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 15):
        raise refuse(422, "cursor is not one that this service gave: take it from `next` of the page before")
    return int(cursor)
