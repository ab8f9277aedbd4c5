"""The cache process: one event loop for ranks and peers, until its job is over or a signal ends it. Its records outlive it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import http.client
import json
import logging
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import uvicorn

from minder.edge.cache.cache import Cache
from minder.edge.cache.endpoints import build_endpoints
from minder.edge.cache.folder import LOCK
from minder.edge.cache.rank_socket import serve_ranks
from minder.edge.cache.sending import SendingProtocol
from minder.edge.cache.settings import CacheSettings, check_settings
from minder.edge.listening import Doorway, PatientLoop, serving_options
from minder.model.errors import BadInputError, NoAnswerError
from minder.model.log import event
from minder.model.private import open_private, replace_private
from minder.wire.plain import Origin

__all__ = ["CacheServer", "ask_peer", "serve"]

_log = logging.getLogger("minder.cache")
_LOOK_S = 2.0
_KEPT_CONNECTION_S = 60
_PORT_FILE = "port"


def serve(settings: CacheSettings) -> None:
    """Run until the job is over (its records are removed then), or until SIGTERM or SIGINT (they stay, for the next cache). SIGTERM, which
    comes before a machine goes down, and SIGUSR1 write the newest step to the disk.

    Raises BadInputError for a folder or memory that cannot serve, or for a second cache in the same folder.
    """
    check_settings(settings)
    with _hold(settings) as lock:
        server = CacheServer(settings)
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(server.run((signal.SIGTERM, signal.SIGINT, signal.SIGUSR1), functools.partial(_announce, server.cache)))
        if server.cache.has_ended:
            Path(lock.name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                settings.folder.rmdir()


def _hold(settings: CacheSettings) -> IO[str]:
    """The folder is ours until what is returned is closed. A cache that ends removes its lock last: one of no name is no lock."""
    try:
        lock = open_private(settings.folder / LOCK)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock.fileno()).st_nlink:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    raise BadInputError(f"a cache of {settings.job} runs in {settings.folder} already: end it, or give another --folder")


def _announce(cache: Cache) -> None:
    settings = cache.settings
    event(
        _log, logging.INFO, "cache listens", job=settings.job, machine=settings.machine, url=cache.url, folder=settings.folder,
        records=len(cache.memory.records), max_bytes=settings.max_bytes,
    )  # fmt: skip
    print(f"minder cache: job {settings.job} on {settings.machine}, at {cache.url}, records in {settings.folder}", flush=True)


def ask_peer(url: str, token: str, body: Mapping[str, Any], wait_s: float) -> str:
    """POST /v1/backups; "" when the peer holds it, else why not. Raises NoAnswerError."""
    origin = Origin.of(url)
    connection = http.client.HTTPConnection(origin.host, origin.port, timeout=max(0.1, wait_s))
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/backups", json.dumps(body), headers)
        answer = connection.getresponse()
        said = answer.read(4096).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswerError(f"the cache at {url} does not answer: {error}") from error
    finally:
        connection.close()
    return "" if answer.status == 200 else f"the cache at {url} answered {answer.status}: {said}"


class CacheServer:
    """A cache and its two doors: `run` until its job is over or `stop` is called, from any thread."""

    def __init__(self, settings: CacheSettings) -> None:
        """Raises BadInputError if the address cannot be had."""
        self._listener = _listen(settings)
        replace_private(settings.folder / _PORT_FILE, str(self._listener.getsockname()[1]))
        host, port = self._listener.getsockname()[:2]
        self.cache = Cache(settings, f"http://{f'[{host}]' if ':' in host else host}:{port}", ask_peer)
        options = {**serving_options(), "http": SendingProtocol, "timeout_keep_alive": _KEPT_CONNECTION_S}
        self._flushing: set[asyncio.Task[None]] = set()
        self._server = _Server(uvicorn.Config(build_endpoints(self.cache), lifespan="off", **options))

    def stop(self) -> None:
        self._server.should_exit = True

    async def run(self, signals: Collection[signal.Signals] = (), on_ready: Callable[[], None] = lambda: None) -> None:
        """signals: those that end it; only in a main thread. Its records stay, except where the job is over."""
        ranks = await serve_ranks(self.cache)
        watching = asyncio.create_task(self._end_when_over())
        for number in signals:
            asyncio.get_running_loop().add_signal_handler(number, functools.partial(self._hear, number))
        on_ready()
        try:
            await self._server.serve(sockets=[self._listener])
            if self._flushing:
                await asyncio.wait(self._flushing)
        finally:
            ranks.close()
            watching.cancel()
            self.cache.settings.socket_path.unlink(missing_ok=True)

    def _hear(self, number: signal.Signals) -> None:
        event(_log, logging.INFO, "signal received", signal=number.name)
        if number in (signal.SIGTERM, signal.SIGUSR1):
            flushing = asyncio.create_task(self._flush())
            self._flushing.add(flushing)
            flushing.add_done_callback(self._flushing.discard)
        if number != signal.SIGUSR1:
            self.stop()

    async def _flush(self) -> None:
        begin_s = time.monotonic()
        count = await asyncio.to_thread(self.cache.flush_now)
        event(_log, logging.INFO, "flushed on request", records=count, seconds=round(time.monotonic() - begin_s, 1))

    async def _end_when_over(self) -> None:
        while not self.cache.is_over():
            await asyncio.sleep(_LOOK_S)
        settings = self.cache.settings
        event(_log, logging.INFO, "job over", job=settings.job, machine=settings.machine, detail="its records are removed")
        await asyncio.to_thread(self.cache.end)
        self.stop()


class _Server(uvicorn.Server):  # type: ignore[misc]
    """Leaves signals to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(settings: CacheSettings) -> Doorway:
    """Where any port will do, the one that the cache before this had: peers know it."""
    with contextlib.suppress(OSError, ValueError):
        if settings.port == 0:
            return Doorway(settings.host, int((settings.folder / _PORT_FILE).read_text()))
    try:
        return Doorway(settings.host, settings.port)
    except OSError as error:
        raise BadInputError(f"--listen {settings.host}:{settings.port}: {error.strerror}; give a free port of this machine") from error
