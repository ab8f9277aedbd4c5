"""GET /metrics of a controller. The page is on this machine only unless a token guards it, and not there at all unless the configuration
asks."""

from __future__ import annotations

import contextlib
import http.server
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest

from minder.model.errors import ConfigError
from minder.wire.contact_log import RefusedCallers
from minder.wire.tokens import is_authorised

__all__ = ["Collects", "Exporter", "exposition"]

_TEXT = "text/plain; version=0.0.4; charset=utf-8"
_PATIENCE_S = 10.0
_MOST_CONNECTIONS = 64
_refused = RefusedCallers(logging.getLogger("minder.controller"))


class Collects(Protocol):
    """What prometheus_client calls a collector."""

    def collect(self) -> Iterable[Metric]: ...


class _Labelled(CollectorRegistry):
    """What several collectors say, with labels that all of it carries."""

    def __init__(self, parts: tuple[Collects, ...], labels: Mapping[str, str]) -> None:
        super().__init__(auto_describe=False)
        self._parts, self._labels = parts, labels

    def collect(self) -> Iterable[Metric]:
        for part in self._parts:
            for family in part.collect():
                kept = (sample for sample in family.samples if not sample.name.endswith("_created"))  # half of all series, for nothing
                family.samples = [sample._replace(labels={**sample.labels, **self._labels}) for sample in kept]
                yield family


def exposition(parts: tuple[Collects, ...], labels: Mapping[str, str]) -> bytes:
    """Prometheus' text format of all parts; every sample carries `labels` too."""
    return bytes(generate_latest(_Labelled(parts, labels)))


class Exporter:
    """Serves the text in threads of its own. Raises ConfigError if the address cannot be had."""

    def __init__(self, host: str, port: int, token: str | None, parts: tuple[Collects, ...], labels: Mapping[str, str]) -> None:
        page = _page(token, lambda: exposition(parts, labels))
        try:
            self._server = _Server((host, port), page)
        except OSError as error:
            raise ConfigError(f"metrics.listen: cannot listen on {host}:{port}: {error.strerror}; choose another address") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="minder-metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        """May be called twice."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(2.0)
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], page: type[http.server.BaseHTTPRequestHandler]) -> None:
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, page)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, as long as there are not too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        self.shutdown_request(request)
        _refused.note(str(client_address[0]), "too many connections", "-")

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that hangs up in the middle is no news."""


def _page(token: str | None, text: Callable[[], bytes]) -> type[http.server.BaseHTTPRequestHandler]:
    class Page(http.server.BaseHTTPRequestHandler):
        server_version = "minder"
        sys_version = ""

        def setup(self) -> None:
            super().setup()
            self._limit = threading.Timer(_PATIENCE_S, self._give_up)  # for the whole head; a time-out of the socket is for each piece
            self._limit.daemon = True
            self._limit.start()

        def finish(self) -> None:
            self._limit.cancel()
            super().finish()

        def _give_up(self) -> None:
            _refused.note(str(self.client_address[0]), "slow headers", "-")
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

        def do_GET(self) -> None:
            self._limit.cancel()  # the request is here; the answer may take its time
            self.connection.settimeout(_PATIENCE_S)  # but not stand still
            if token is not None and not is_authorised(self.headers.get("Authorization"), token):
                _refused.note(str(self.client_address[0]), "token", self.path.partition("?")[0])
                self._answer(401, b"wrong or missing token\n", {"WWW-Authenticate": "Bearer"})
            elif self.path.partition("?")[0] != "/metrics":
                self._answer(404, b"only /metrics is here\n", {})
            else:
                self._answer(200, text(), {})

        def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": _TEXT, "Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Nothing: who scrapes does so every few seconds."""

    return Page
