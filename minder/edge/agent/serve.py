"""Runs the agent until a signal ends it: one process, one worker, one address."""

from __future__ import annotations

import errno
import logging
import signal

import uvicorn

from minder.edge.agent.options import AgentOptions
from minder.edge.agent.service import build_application
from minder.edge.listening import Doorway, run_server, serving_options
from minder.model.errors import BadInputError, MinderError
from minder.model.log import event
from minder.wire.addresses import is_loopback
from minder.wire.own_token import warn_of_shared

__all__ = ["bind", "serve"]

_log = logging.getLogger("minder.agent")


def serve(options: AgentOptions) -> None:
    """Blocks until SIGTERM or SIGINT. Raises MinderError if the address cannot be had, BadInputError if it is unsafe."""
    if options.token is None and not is_loopback(options.host):
        raise BadInputError(f"{options.host} can be reached from outside: give --token-file (or MINDER_TOKEN), or listen on 127.0.0.1")
    application = build_application(options)
    listener = bind(options.host, options.port)
    host, port = listener.getsockname()[:2]
    scheme = "http" if options.tls is None else "https"
    ranks = "environment" if options.finds_jobs else "named"  # by RANK and WORLD_SIZE of every process, or by launchers and options alone
    event(_log, logging.INFO, "agent listens", machine=options.machine, url=f"{scheme}://{host}:{port}", ranks=ranks)
    warn_of_shared(options.token, options.machine, _log)
    config = uvicorn.Config(application, lifespan="on", **serving_options(), **({} if options.tls is None else options.tls.options()))
    for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn stops, then raises the signal again: that is a clean end
        signal.signal(number, _end)
    run_server(config, listener)


def _end(number: int, frame: object) -> None:
    event(_log, logging.INFO, "signal received", signal=signal.Signals(number).name)
    raise SystemExit(0)


def bind(host: str, port: int, **bounds: int | None) -> Doorway:
    """A listening socket on exactly this address. bounds: see Doorway. Raises MinderError."""
    try:
        return Doorway(host, port, **bounds)  # type: ignore[arg-type]
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise MinderError(f"{host}:{port} is in use: stop what listens there (another agent?) or give --listen another port") from error
        raise MinderError(f"cannot listen on {host}:{port}: {error.strerror}; --listen needs an address of this machine") from error
