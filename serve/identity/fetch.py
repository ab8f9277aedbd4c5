"""Calls to the identity provider: only addresses that are configured or that its discovery document names, bounded in time and bytes.

No redirect is followed and no proxy of the environment is used. The time is that of the whole answer: a provider that sends a byte
now and then is given up like one that sends nothing.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping
from typing import Any

import httpx

from minder.model.errors import ConfigError
from serve.identity.oidc_settings import OidcSettings

__all__ = ["MOST_BYTES", "FetchError", "Fetcher"]

MOST_BYTES = 256 * 1024


class FetchError(Exception):
    """Why there is no answer, in a few words of ours. status: what the provider answered with; None where it did not."""

    def __init__(self, why: str, status: int | None = None) -> None:
        super().__init__(why)
        self.status = status


class Fetcher:
    """For callers in threads without an event loop."""

    def __init__(self, settings: OidcSettings) -> None:
        """Raises ConfigError for a ca_file that cannot be used."""
        self._within_s = settings.timeout_s
        try:
            self._context = ssl.create_default_context(cafile=settings.ca_file)
        except OSError as error:  # also ssl.SSLError
            raise ConfigError(f"oidc.ca_file {settings.ca_file} cannot be used: {error.strerror or error}") from error

    def get(self, url: str) -> Any:
        """A JSON document. Raises FetchError."""
        status, document = self._ask("GET", url, None, None)
        if status != 200:
            raise FetchError(f"it answered with HTTP {status}", status)
        return document

    def post(self, url: str, fields: Mapping[str, str], login: tuple[str, str] | None) -> tuple[int, Any]:
        """Send a form, with HTTP basic authentication where a login is given; (status, JSON document). Raises FetchError."""
        return self._ask("POST", url, fields, login)

    def _ask(self, method: str, url: str, fields: Mapping[str, str] | None, login: tuple[str, str] | None) -> tuple[int, Any]:
        try:
            status, content = asyncio.run(self._within(method, url, fields, login))
            return status, json.loads(content)
        except TimeoutError:
            raise FetchError(f"it did not answer within {self._within_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise FetchError(f"it cannot be reached ({type(error).__name__})") from None
        except (ValueError, RecursionError):
            raise FetchError("its answer is no JSON document") from None

    async def _within(self, method: str, url: str, fields: Mapping[str, str] | None, login: tuple[str, str] | None) -> tuple[int, bytes]:
        options: dict[str, Any] = {"verify": self._context, "timeout": self._within_s, "trust_env": False, "follow_redirects": False}
        headers = {"Accept": "application/json"}
        async with asyncio.timeout(self._within_s), httpx.AsyncClient(**options) as http:
            auth = None if login is None else httpx.BasicAuth(*login)
            async with http.stream(method, url, data=fields, headers=headers, auth=auth) as answer:
                content = b""
                async for block in answer.aiter_bytes():
                    content += block
                    if len(content) > MOST_BYTES:
                        raise FetchError(f"its answer is larger than {MOST_BYTES} bytes")
                return answer.status_code, content
