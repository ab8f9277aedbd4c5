"""Runs the service until it is stopped. Nothing listens beyond this machine unless the settings say so, and never without a token."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import signal
import ssl
from dataclasses import dataclass

import uvicorn

from minder.edge.agent.serve import bind
from minder.edge.listening import run_server, serving_options
from minder.model.errors import BadInputError
from minder.model.log import event, say
from minder.wire.addresses import is_loopback
from serve.app import build_app
from serve.identity.certificates import PeerProtocol
from serve.settings import Settings
from serve.state import Service, open_service

__all__ = ["Listening", "run_service"]

_log = logging.getLogger("minder.serve")
_MOST_CONNECTIONS = 2000
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1  # of malloc.h
_LARGE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Listening:
    """Where to listen. certificate, key: PEM files. plain: HTTP beyond this machine is meant, such as behind a proxy that ends TLS.
    client_authority: PEM file of who signs machines' certificates."""

    host: str = "127.0.0.1"
    port: int = 9400
    certificate: str | None = None
    key: str | None = None
    plain: bool = False
    client_authority: str | None = None


def run_service(settings: Settings, listening: Listening) -> None:
    """Blocks until SIGTERM or SIGINT. Raises BadInputError for what is unsafe, MinderError where the address cannot be had."""
    _give_memory_back()
    service = open_service(settings)
    try:
        _check(service, listening)
        _serve(service, listening)
    finally:
        service.close()


def _give_memory_back() -> None:
    """Let threads share two arenas, and map what is large by itself: freed, it is given back. glibc gives each thread an arena,
    none of which shrinks, and raises the bound of what it maps to the largest that it saw: a page of 5 MB, and those after it stay."""
    with contextlib.suppress(OSError, AttributeError):  # another C library has none of these
        library = ctypes.CDLL(None)
        library.mallopt(_M_ARENA_MAX, 2)
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)


def _leave_past_alone() -> None:
    """Have the collector of cycles walk no longer through what stays: some hundred thousand objects of the ledger's past. A full round
    falls to the one who asks for something large, every second reading of a large job's status, and took 0.2 s of it and more."""
    gc.collect()
    gc.freeze()


def _check(service: Service, listening: Listening) -> None:
    if (listening.certificate is None) != (listening.key is None):
        raise BadInputError("give both --tls-cert and --tls-key, or neither")
    if listening.client_authority is not None and listening.certificate is None:
        raise BadInputError("--tls-client-ca goes with --tls-cert and --tls-key: machines' certificates come over TLS only")
    valid = [token for token in service.tokens.list() if token.is_valid(service.clock.now_s())]
    if not valid:
        _log.warning("no token is valid yet: make one with `minder token create NAME --role viewer`, and the --ledger of this service")
    if is_loopback(listening.host):
        return
    if not valid:
        raise BadInputError(f"{listening.host} can be reached from outside, and no token is valid: run `minder token create` first")
    if listening.certificate is None and not listening.plain:
        raise BadInputError(
            f"{listening.host} can be reached from outside: give --tls-cert and --tls-key, or --plain-http where a proxy ends TLS"
        )


def _serve(service: Service, listening: Listening) -> None:
    listener = bind(listening.host, listening.port, most=_MOST_CONNECTIONS, most_of_one=None)  # a proxy may speak for everybody
    host, port = listener.getsockname()[:2]
    scheme = "https" if listening.certificate else "http"
    config = uvicorn.Config(
        build_app(service, _leave_past_alone),
        lifespan="on",
        **serving_options() | {"http": PeerProtocol, "timeout_graceful_shutdown": 2},
        timeout_keep_alive=20,
        limit_concurrency=_MOST_CONNECTIONS,
        ssl_certfile=listening.certificate,
        ssl_keyfile=listening.key,
        ssl_ca_certs=listening.client_authority,
        ssl_cert_reqs=ssl.CERT_OPTIONAL if listening.client_authority else ssl.CERT_NONE,
    )
    try:
        config.load()
    except OSError as error:  # also ssl.SSLError
        listener.close()
        raise BadInputError(f"--tls-cert, --tls-key or --tls-client-ca cannot be used: {error.strerror or error}") from error
    name = f"[{host}]" if ":" in host else host
    say(f"minder: service on {scheme}://{name}:{port}/v1, ledger {service.location}")
    event(_log, logging.INFO, "service listens", url=f"{scheme}://{name}:{port}/v1", ledger=service.location)
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn stops, then raises the signal again: that is a clean end
        signal.signal(number, _end)
    run_server(config, listener)


def _end(number: int, frame: object) -> None:
    event(_log, logging.INFO, "signal received", signal=signal.Signals(number).name)
    raise SystemExit(0)
