"""Where a verb finds its ledger: here, or at a service (`minder --server URL`, $MINDER_SERVER)."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from minder.model.errors import BadInputError
from minder.model.log import say

if TYPE_CHECKING:
    from minder.record.client import Client
    from minder.record.client.ledger import RemoteLedger
    from minder.record.incidents import Ledger

__all__ = ["REMOTE_VERBS", "Server", "choose_server", "command_place", "demand_note", "is_served", "open_client", "open_ledger"]

REMOTE_VERBS = frozenset({"decision", "incidents", "job", "machine", "maintenance", "pause", "policy", "unpause", "report"})
_chosen: ContextVar[Server | None] = ContextVar("server", default=None)


@dataclass(frozen=True, slots=True)
class Server:
    """What the command line says of the service. given: by option, not by environment."""

    url: str
    token_file: str | None
    ca_file: str | None
    given: bool


def choose_server(url: str | None, token_file: str | None, ca_file: str | None, verb: str | None) -> None:
    """Remember it for the verb that follows. Raises BadInputError for a verb that works here only."""
    found = url or os.environ.get("MINDER_SERVER")
    if url and verb is not None and verb not in REMOTE_VERBS:
        raise BadInputError(f"`minder {verb}` works on this machine only: --server goes with {', '.join(sorted(REMOTE_VERBS))}")
    if not url and (token_file or ca_file) and not found:
        raise BadInputError("--token-file and --ca-file go with --server URL")
    token_file = token_file or os.environ.get("MINDER_TOKEN_FILE")
    ca_file = ca_file or os.environ.get("MINDER_CA_FILE")
    _chosen.set(Server(found, token_file, ca_file, bool(url)) if found else None)


def is_served(url: str | None) -> bool:
    """Whether a service is named, by --server (`url`) or by the environment."""
    return bool(url or os.environ.get("MINDER_SERVER"))


def open_ledger(ledger: str | None) -> Ledger | RemoteLedger:
    """The ledger that --ledger names, else the service's, else the usual one here. Raises BadInputError, WireError."""
    server = _chosen.get()
    if server is not None and ledger is not None and server.given:
        raise BadInputError("give either --server or --ledger: a service has a ledger of its own")
    if server is not None and ledger is None:
        from minder.record.client.ledger import RemoteLedger

        return RemoteLedger(_client(server))
    from minder.cli.extras import demand_controller
    from minder.record.incidents import Ledger, find_ledger

    demand_controller()
    return Ledger(find_ledger(ledger), create=False)


def command_place(ledger: str | None) -> Callable[[str], str]:
    """Makes of a command of minder's one that means the same ledger, pasted into the same shell."""
    import functools

    from minder.record.incidents.brief import place_command

    server = _chosen.get() if ledger is None else None
    if server is None or not server.given:
        return functools.partial(place_command, ledger=ledger)
    return functools.partial(place_command, server=server.url, token_file=server.token_file)


def open_client() -> Client:
    """For verbs that need a service. Raises BadInputError where none is named."""
    server = _chosen.get()
    if server is None:
        raise BadInputError("this needs a service: give --server URL before the verb, or set MINDER_SERVER")
    return _client(server)


def demand_note(text: str, option: str) -> str:
    """The service takes no action without a reason."""
    if not text.strip():
        raise BadInputError(f"{option} is missing: the service writes down why")
    return text


def _client(server: Server) -> Client:
    import ssl

    import httpx

    from minder.record.client import Client
    from minder.wire.addresses import is_loopback

    parts = _parts(server.url)
    token = _token(server)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        say(f"note: the token goes to {parts.hostname} unencrypted: use https")
    try:
        context = ssl.create_default_context(cafile=server.ca_file)
    except OSError as error:  # also ssl.SSLError
        raise BadInputError(f"--ca-file {server.ca_file} cannot be used: {error.strerror or error}") from error
    http = httpx.Client(base_url=server.url, timeout=httpx.Timeout(60.0, connect=5.0), verify=context)
    return Client(server.url, token, http=http)


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise BadInputError(f'--server "{url}" is no address: give one like https://minder.example.org')
    return parts


def _token(server: Server) -> str:
    from minder.wire.tokens import read_token

    if server.token_file is not None:
        return read_token(server.token_file)
    if (token := os.environ.get("MINDER_TOKEN", "")).strip():
        return token
    raise BadInputError(f"{server.url} wants a token: give --token-file, or set MINDER_TOKEN_FILE; `minder token create` makes one there")
