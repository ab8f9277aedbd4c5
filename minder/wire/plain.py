"""Small HTTP/1.1 questions to thousands of our own processes, over connections that are kept.

A controller asks each machine one to three times a second. The general HTTP clients cost 0.1 to 3 ms of processor time a question
(docs/experiments.md), and that was most of what a controller did; this one costs some hundredths. It asks, and reads one whole
bounded answer. It follows no redirect, unpacks nothing, knows no cookies and no proxy.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import urllib.parse
from collections import defaultdict
from dataclasses import dataclass

from minder.model.errors import NoAnswerError
from minder.wire.answers import Answer, AnswerReader

__all__ = ["Origin", "PlainHttp", "Question"]

_LARGEST_BYTES = 16 * 2**20  # an answer that does not end must not fill our memory
_VISIBLE = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a URL leads: who listens there, and the path that begins all paths below it."""

    host: str
    port: int
    tls: bool
    base: str  # without a slash at its end

    @classmethod
    def of(cls, url: str) -> Origin:
        """Raises NoAnswerError for a URL that cannot be asked.

        >>> Origin.of("http://[::1]:9400/a/")
        Origin(host='::1', port=9400, tls=False, base='/a')
        """
        try:
            parts = urllib.parse.urlsplit(url)
            port, host = parts.port, (parts.hostname or "").encode("ascii" if ":" in (parts.hostname or "") else "idna").decode()
        except ValueError as error:  # UnicodeError too
            raise NoAnswerError(f"{url!r} is no address: {error}") from error
        if parts.scheme not in ("http", "https") or not host or parts.username is not None or parts.query or parts.fragment:
            raise NoAnswerError(f"{parts.scheme}://{parts.hostname} is no address of the form http://host:port/path")
        return cls(
            host,
            port or (443 if parts.scheme == "https" else 80),
            parts.scheme == "https",
            urllib.parse.quote(parts.path.rstrip("/"), "/%:@"),
        )

    @property
    def name(self) -> str:
        """As it stands in a Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class Question:
    """What is asked again and again of one origin: the headers are put together once. path may end in a query."""

    def __init__(self, origin: Origin, token: str = "") -> None:
        if token and _VISIBLE.fullmatch(token) is None:
            raise NoAnswerError("a token has a character that no header can carry")
        access = f"Authorization: Bearer {token}\r\n" if token else ""
        self.origin = origin
        self._rest = f" HTTP/1.1\r\nHost: {origin.name}\r\nAccept: */*\r\nUser-Agent: minder\r\n{access}"

    def get(self, path: str) -> bytes:
        return f"GET {self.origin.base}{path}{self._rest}\r\n".encode("ascii")

    def post(self, path: str, body: bytes) -> bytes:
        more = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        return f"POST {self.origin.base}{path}{self._rest}{more}".encode("ascii") + body


class PlainHttp:
    """Asks within one event loop. tls: what https addresses are called with; None: the system's authorities."""

    def __init__(self, tls: ssl.SSLContext | None = None, largest_bytes: int = _LARGEST_BYTES) -> None:
        self._tls = tls
        self._largest = largest_bytes
        self._idle: defaultdict[tuple[str, int, bool], list[_Connection]] = defaultdict(list)

    async def get(self, question: Question, path: str, silent_s: float, connect_s: float | None = None) -> Answer:
        """Raises NoAnswerError: nothing listens, the peer hung up, sent no HTTP or half an answer, or was silent for silent_s; one that has
        begun to answer gets twice as long for all of it. OSError (ssl.SSLError) while connecting is the cause of the error."""
        origin, request = question.origin, question.get(path)
        waiting = self._idle[origin.host, origin.port, origin.tls]
        while waiting:
            connection = waiting.pop()
            if connection.closed:
                continue
            try:
                return await self._ask(connection, request, silent_s, waiting)
            except NoAnswerError:
                if connection.reader.heard or not connection.closed_by_peer:
                    raise  # else it had just closed a connection that was kept too long: that says nothing
        connection = await self._connect(origin, silent_s if connect_s is None else connect_s)
        return await self._ask(connection, request, silent_s, waiting)

    async def post(self, question: Question, path: str, body: bytes, silent_s: float, connect_s: float) -> Answer:
        """As `get`, on a connection of its own: what may change something is never asked twice."""
        connection = await self._connect(question.origin, connect_s)
        return await self._ask(connection, question.post(path, body), silent_s, None)

    def close(self) -> None:
        for connections in self._idle.values():
            for connection in connections:
                connection.abort()
        self._idle.clear()

    async def _connect(self, origin: Origin, patience_s: float) -> _Connection:
        if origin.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            async with asyncio.timeout(patience_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    _Connection, origin.host, origin.port, ssl=self._tls if origin.tls else None
                )
        except TimeoutError as error:
            raise NoAnswerError(f"no connection within {patience_s:g} s") from error
        except OSError as error:
            raise NoAnswerError(f"no connection: {error.strerror or error}") from error
        return connection

    async def _ask(self, connection: _Connection, request: bytes, silent_s: float, keep_in: list[_Connection] | None) -> Answer:
        kept = False
        try:
            answer = await connection.ask(request, silent_s, self._largest)
            if answer.keep and keep_in is not None and not connection.closed:
                keep_in.append(connection)
                kept = True
            return answer
        finally:
            if not kept:  # cancelled, too: what comes later must not be taken for the answer to another question
                connection.abort()


class _Connection(asyncio.Protocol):
    """One connection, one question at a time."""

    def __init__(self) -> None:
        self.closed = self.closed_by_peer = False
        self.reader = AnswerReader(0)
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[Answer] | None = None
        self._transport: asyncio.Transport | None = None
        self._limit: asyncio.TimerHandle | None = None

    async def ask(self, request: bytes, silent_s: float, largest_bytes: int) -> Answer:
        assert self._transport is not None
        self.reader = AnswerReader(largest_bytes)
        self._answer = self._loop.create_future()
        self._limit = self._loop.call_later(silent_s, self._late, silent_s, False)
        try:
            self._transport.write(request)
            return await self._answer
        finally:
            self._limit.cancel()
            self._answer = None

    def abort(self) -> None:
        self.closed = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.abort()  # no question is open
            return
        try:
            answer = self.reader.feed(data)
        except NoAnswerError as error:
            self._answer.set_exception(error)
            return
        if answer is not None:
            self._answer.set_result(answer)

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, error: Exception | None) -> None:
        self.closed = self.closed_by_peer = True
        if self._answer is None or self._answer.done():
            return
        try:
            self._answer.set_result(self.reader.end())
        except NoAnswerError as cut_off:
            cut_off.__cause__ = error
            self._answer.set_exception(cut_off)

    def _late(self, silent_s: float, again: bool) -> None:
        if self._answer is None or self._answer.done():
            return
        if self.reader.heard and not again:
            self._limit = self._loop.call_later(silent_s, self._late, silent_s, True)
            return
        reason = "the answer comes too slowly" if self.reader.heard else f"no answer within {silent_s:g} s"
        self._answer.set_exception(NoAnswerError(reason))
