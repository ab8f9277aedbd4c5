"""One call to the service: sent again where that is safe, its refusals as exceptions with one line."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from minder.model.errors import BadInputError, WireError
from minder.record.api.problem import MEDIA_TYPE

__all__ = ["Calls"]

_ATTEMPTS = 3
_LONGEST_WAIT_S = 30.0


class Calls:
    """Requests with a token. sleep: waits between attempts, in seconds."""

    def __init__(self, http: httpx.Client, sleep: Callable[[float], None] = time.sleep) -> None:
        self.http = http
        self._sleep = sleep

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:
        """The JSON of a read; parameters that are None are left out."""
        given = {name: value for name, value in (params or {}).items() if value is not None}
        return self._json("GET", path, params=given)

    def read(self, path: str) -> bytes:
        """The body of a read that is a file."""
        return self._send("GET", path).content

    def act(self, path: str, body: Mapping[str, Any] | None = None, *, method: str = "POST", **arguments: Any) -> Any:
        """The JSON of an action. It is sent again with the same key if no answer comes: the service does it once."""
        headers = {**arguments.pop("headers", {}), "Idempotency-Key": uuid.uuid4().hex}
        return self._json(method, path, headers=headers, **({} if body is None else {"json": body}), **arguments)

    def post(self, path: str, **arguments: Any) -> Any:
        """The JSON of a request that changes nothing."""
        return self._json("POST", path, **arguments)

    def check(self, answer: httpx.Response) -> None:
        """Raises BadInputError or WireError for an answer that is none."""
        _checked(answer)

    def _json(self, method: str, path: str, **arguments: Any) -> Any:
        answer = self._send(method, path, **arguments)
        try:
            return answer.json()
        except ValueError as error:
            raise WireError(f"{self.http.base_url} answers {path} with something that is no JSON: is it a minder service?") from error

    def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = self.http.request(method, path, **arguments)
            except httpx.TransportError as error:
                if attempt == _ATTEMPTS:
                    raise WireError(f"{self.http.base_url} does not answer: {type(error).__name__} {error}".rstrip()) from error
                self._sleep(0.2 * attempt)
                continue
            if answer.status_code not in (429, 503) or attempt == _ATTEMPTS:
                return _checked(answer)
            self._sleep(_wait_s(answer))
        raise AssertionError("unreachable")


def _wait_s(answer: httpx.Response) -> float:
    wait = answer.headers.get("retry-after", "1")
    return min(_LONGEST_WAIT_S, float(wait)) if wait.isdigit() else 1.0


def _checked(answer: httpx.Response) -> httpx.Response:
    """Raises BadInputError where the service refuses (4xx), WireError where it cannot answer."""
    if answer.is_success:
        return answer
    detail = f"HTTP {answer.status_code}"
    if answer.headers.get("content-type", "").startswith(MEDIA_TYPE):
        detail = str(answer.json().get("detail", detail))
    kind = BadInputError if answer.is_client_error else WireError
    raise kind(f"{answer.request.url.path}: {detail}")
