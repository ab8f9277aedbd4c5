"""Machines' certificates: what the client certificate of a connection says, brought to the routes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from minder.edge.listening import PatientProtocol

__all__ = ["PeerProtocol", "certified_names"]

_KEY = "minder.certified"


class PeerProtocol(PatientProtocol):
    """HTTP/1.1 whose requests know the names in the client's certificate, which the TLS layer has verified. Headers never count."""

    body_s = 70.0  # longer than the service waits for an upload before it says so

    app: ASGIApp

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        encrypted = transport.get_extra_info("ssl_object")
        names = _names(encrypted.getpeercert() if encrypted is not None else None)
        inner: ASGIApp = self.app

        async def certified(scope: Scope, receive: Receive, send: Send) -> None:
            scope[_KEY] = names
            await inner(scope, receive, send)

        self.app = certified


def certified_names(connection: HTTPConnection) -> frozenset[str]:
    """Names of the client's verified certificate; none without one."""
    found = connection.scope.get(_KEY)
    return found if isinstance(found, frozenset) else frozenset()


def _names(certificate: Mapping[str, Any] | None) -> frozenset[str]:
    """Its DNS names; its common name only where it has none (RFC 6125)."""
    if not certificate:
        return frozenset()
    names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return frozenset(names or common)
