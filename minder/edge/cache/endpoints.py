"""The cache's HTTP, for the caches of the job's other machines: see docs/state.md, which describes the protocol."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from minder.edge.cache.cache import Cache
from minder.edge.cache.pull import PIECE_BYTES, be_nice
from minder.edge.cache.record import RecordName
from minder.edge.cache.sending import FileBody
from minder.model.errors import CheckpointError, WireError
from minder.wire.contact_log import RefusedCallers
from minder.wire.guard import Scope, TokenGuard
from minder.wire.token_files import admits

__all__ = ["build_endpoints"]

T = TypeVar("T")
_log = logging.getLogger("minder.cache")
_LARGEST_BODY_BYTES = 1 << 16
_READERS, _PULLERS = 8, 16


def build_endpoints(cache: Cache) -> ASGIApp:
    """The ASGI application. Errors are {"error": one line}: 400 a malformed request, 401 no token, 404 no such record, 409 no backup."""
    readers = ThreadPoolExecutor(_READERS, "minder-read")  # heads, and bodies for a recovery
    senders = ThreadPoolExecutor(_READERS, "minder-send", be_nice)  # bodies for backups
    pullers = ThreadPoolExecutor(_PULLERS, "minder-pull", be_nice)  # of their own: a backup waits for another cache's senders

    async def state(request: Request) -> Response:
        return JSONResponse({**await _in(readers, cache.hello), "used_bytes": await _in(readers, cache.memory.used_bytes)})

    async def head(request: Request) -> Response:
        return Response(await _in(readers, cache.head, _name(request.path_params["name"])), media_type="application/octet-stream")

    async def body(request: Request) -> Response:
        begin, count = (_whole(request, key) for key in ("from", "bytes"))
        path, size_bytes = await _in(readers, cache.find_body, _name(request.path_params["name"]))
        pool = readers if request.query_params.get("urgent") == "1" else senders
        return await _in(pool, FileBody, path, begin, max(0, min(count, PIECE_BYTES, size_bytes - begin)), pool)

    async def backups(request: Request) -> Response:
        text = await request.body()
        try:
            wanted = json.loads(text[:_LARGEST_BODY_BYTES])
            name, url = _name(str(wanted["name"])), str(wanted["url"])
        except (ValueError, KeyError, TypeError) as error:
            raise WireError('the body is no backup request: send {"name": RECORD, "url": ADDRESS OF THE CACHE THAT HAS IT}') from error
        try:
            await _in(pullers, cache.hold_backup, name, url)
        except (WireError, CheckpointError, OSError) as error:
            return JSONResponse({"error": str(error)}, 409)
        return JSONResponse({"held": str(name)})

    app = Starlette(
        routes=[
            Route("/v1/state", _answer(state), methods=["GET"]),
            Route("/v1/records/{name}/head", _answer(head), methods=["GET"]),
            Route("/v1/records/{name}/body", _answer(body), methods=["GET"]),
            Route("/v1/backups", _answer(backups), methods=["POST"]),
        ]
    )
    refusal = JSONResponse({"error": "wrong or missing token: send Authorization: Bearer TOKEN"}, 401)
    return _JobGuard(app, refusal, RefusedCallers(_log), cache)


class _JobGuard(TokenGuard):
    """Lets in what has the job's token, which the ranks chose when they met, or this machine's. Before any rank has joined: the latter."""

    def __init__(self, app: Any, refusal: Any, refused: RefusedCallers, cache: Cache) -> None:
        super().__init__(app, refusal, refused, cache.settings.token)
        self._cache = cache

    def _lets_in(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization")
        header = None if given is None else given.decode("latin-1")
        if any(admits(token, header) for token in self._cache.members.tokens):
            return True
        return self._token is not None and super()._lets_in(scope)


def _answer(work: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Errors that we raise on purpose are answers."""

    async def answer(request: Request) -> Response:
        try:
            return await work(request)
        except (CheckpointError, FileNotFoundError) as error:
            return JSONResponse({"error": str(error)}, 404)
        except WireError as error:
            return JSONResponse({"error": str(error)}, 400)

    return answer


async def _in(pool: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, partial(work, *arguments))


def _name(text: str) -> RecordName:
    found = RecordName.parse(text)
    if found is None:
        raise WireError(f"{text[:80]!r} names no record")
    return found


def _whole(request: Request, key: str) -> int:
    text = request.query_params.get(key, "")
    if not text.isdigit() or len(text) > 15:
        raise WireError(f"{key} is {text[:20]!r}: give a number of bytes, 0 or more")
    return int(text)
