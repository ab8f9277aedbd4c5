"""How agent, launcher and service listen: a caller without a token costs little, whatever it does.

Connections are counted where they are accepted, before TLS and before any byte is read; the rest is closed at once. A request's head
has ten seconds, as a TLS handshake has, its body twenty. Each of these is logged as a refused caller.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections import Counter
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from minder.wire.contact_log import RefusedCallers

__all__ = ["Doorway", "PatientLoop", "PatientProtocol", "run_server", "serving_options"]

HEAD_S = 10.0
_BODY_S = 20.0
_MOST = 256
_OWN_FILES = 100  # descriptors that a process needs for itself
_BACKLOG = 128


class PatientProtocol(H11Protocol):  # type: ignore[misc]
    """HTTP/1.1 that gives up a request whose head or body does not come. head_s, body_s: seconds. refused: where that is noted."""

    head_s, body_s = HEAD_S, _BODY_S
    refused = RefusedCallers(logging.getLogger("minder.listening"))
    _limit: asyncio.TimerHandle | None = None
    _awaited: Any = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._await_rest()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_rest()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is not h11.IDLE:  # else uvicorn's own limit for connections that are kept holds until a byte comes
            self._await_rest()
        else:
            self._forget()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _await_rest(self) -> None:
        """A limit for the head, another for the body, none for the answer."""
        state = self.conn.their_state
        if state not in (h11.IDLE, h11.SEND_BODY):
            self._forget()
        elif state is not self._awaited:
            self._forget()
            self._awaited = state
            self._limit = asyncio.get_running_loop().call_later(self.head_s if state is h11.IDLE else self.body_s, self._give_up)

    def _forget(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._limit = self._awaited = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            why = "slow headers" if self._awaited is h11.IDLE else "slow body"
            self.refused.note(self.client[0] if self.client else "?", why, "-")
            self.transport.abort()


class Doorway(socket.socket):
    """A listening socket that accepts so many connections at once, and of one address a share of them; the rest is closed at once.

    most_of_one: None where one proxy may speak for everybody. Raises MinderError if the address cannot be had.
    """

    def __init__(self, host: str, port: int, most: int = _MOST, most_of_one: int | None = _MOST // 2) -> None:
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self._most, self._most_of_one = min(most, _descriptors()), most_of_one
        self._inside: list[tuple[socket.socket, str]] = []
        self.refused = PatientProtocol.refused
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.bind((host, port))
            self.listen(_BACKLOG)  # before the address is printed: its reader may call at once
        except OSError:
            self.close()
            raise
        self.set_inheritable(False)

    def accept(self) -> tuple[socket.socket, Any]:
        """Raises ConnectionAbortedError for one that is turned away: an event loop goes on with the next."""
        connection, address = super().accept()
        peer = str(address[0])
        if not self._has_room(peer):
            connection.close()
            self.refused.note(peer, "too many connections", "-")
            raise ConnectionAbortedError("too many connections")
        self._inside.append((connection, peer))
        return connection, address

    def _has_room(self, peer: str) -> bool:
        self._inside = [(connection, whose) for connection, whose in self._inside if connection.fileno() >= 0]
        if len(self._inside) >= self._most:
            return False
        return self._most_of_one is None or Counter(whose for _, whose in self._inside)[peer] < self._most_of_one


class PatientLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers give up a TLS handshake as they give up a request's head."""

    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", HEAD_S)
        return await super().create_server(*arguments, **options)


def run_server(config: uvicorn.Config, listener: Doorway) -> None:
    """Blocks until SIGTERM or SIGINT; uvicorn then raises the signal again."""
    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        runner.run(uvicorn.Server(config).serve(sockets=[listener]))


def serving_options() -> dict[str, Any]:
    """For uvicorn.Config: what agent and launcher have in common."""
    return {
        "http": PatientProtocol,
        "ws": "none",
        "log_level": "warning",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "timeout_graceful_shutdown": 1,
    }


def _descriptors() -> int:
    """So many connections leave a process the files that it needs itself."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(16, soft - _OWN_FILES) if soft != resource.RLIM_INFINITY else _MOST * 100
