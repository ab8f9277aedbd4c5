"""What an agent or a launcher asks of every request before anything else sees it: its machine's token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from minder.wire.contact_log import RefusedCallers
from minder.wire.token_files import Token, admits

__all__ = ["TokenGuard"]

Scope = MutableMapping[str, Any]
Application = Callable[[Scope, Any, Any], Awaitable[None]]


class TokenGuard:
    """An ASGI application around another. token: None where anybody on this machine may call. metrics_token: opens GET /metrics and
    nothing else, so that a Prometheus needs no token that does more. refusal: answers 401; each refused caller is logged."""

    def __init__(
        self, app: Application, refusal: Application, refused: RefusedCallers, token: Token | None, metrics_token: Token | None = None
    ) -> None:
        self._app, self._refusal, self._refused = app, refusal, refused
        self._token, self._metrics_token = token, metrics_token

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not self._lets_in(scope):
            self._refused.note((scope.get("client") or ("?",))[0], "token", str(scope.get("path")))
            await self._refusal(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _lets_in(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        given = dict(scope["headers"]).get(b"authorization")
        header = None if given is None else given.decode("latin-1")
        if admits(self._token, header):
            return True
        reads_metrics = scope["method"] in ("GET", "HEAD") and scope["path"] == "/metrics"
        return reads_metrics and self._metrics_token is not None and admits(self._metrics_token, header)
