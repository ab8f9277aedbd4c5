"""What every request passes before a route sees it: bounds on its body, and a measure of its answer."""

from __future__ import annotations

import asyncio
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.metrics import Metrics
from serve.problems import problem, refuse
from serve.settings import Limits

__all__ = ["UPLOAD_PATHS", "BodyBounds", "Measured"]

UPLOAD_PATHS = ("/v1/scores", "/v1/stacks", "/v1/collectives")
SESSIONS_PATH = "/v1/scores/sessions"
SIGNALS_PATH = "/v1/signals"
JOBS_PATH = "/v1/jobs"
CODE_ENDS = ("/code", "/code/pieces", "/updates")


class BodyBounds:
    """413 for a body that is too large (counted as it comes, whatever it says of itself), 408 for one that is not there in time."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._most(scope["path"])
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > most:
            await problem(413, f"the body is larger than the {most} bytes that are taken here", {"Connection": "close"})(
                scope, receive, send
            )
            return
        await self._app(scope, _Bounded(receive, most, self._limits.body_s), send)

    def _most(self, path: str) -> int:
        if path in UPLOAD_PATHS or path.startswith(f"{SESSIONS_PATH}/"):
            return self._limits.upload_bytes
        if path == JOBS_PATH or (path.startswith(f"{JOBS_PATH}/") and path.endswith(CODE_ENDS)):
            return self._limits.job_bytes
        return self._limits.signal_bytes if path.startswith(SIGNALS_PATH) else self._limits.body_bytes


class _Bounded:
    """`receive` that stops at so many bytes or seconds."""

    def __init__(self, receive: Receive, most: int, within_s: float) -> None:
        self._receive, self._left, self._most = receive, most, most
        self._deadline_s = time.monotonic() + within_s
        self._whole = False

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()  # waits for the caller to go away
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._deadline_s - time.monotonic()))
        except TimeoutError:
            raise refuse(408, "the body did not come in time", Connection="close") from None
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._left < 0:
                raise refuse(413, f"the body is larger than the {self._most} bytes that are taken here", Connection="close")
        return message


class Measured:
    """Counts and times every answer by its route."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun_s, status = time.monotonic(), 500

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message.setdefault("headers", []).append((b"x-content-type-options", b"nosniff"))
                self._metrics.seconds.labels(_route(scope)).observe(time.monotonic() - begun_s)
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            method = scope["method"] if scope["method"] in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS") else "other"
            self._metrics.requests.labels(method, _route(scope), str(status)).inc()


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "none"))
