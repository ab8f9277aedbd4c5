"""A process for each registered job: `minder watch --registered NAME`, started again when it ends, ended with the registration."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import time

from minder.ingest.sources.access import SECRET_VARIABLES
from minder.model.errors import LedgerError
from minder.record.incidents import Ledger, kinds
from serve.state import Service
from serve.watching.stay import PARENT

__all__ = ["Watchers"]

_log = logging.getLogger("minder.serve")
_LOOK_S = 1.0
_LONGEST_WAIT_S = 60.0
_END_S = 15.0

Key = tuple[str, int]  # a job, and the event by which it was registered


class Watchers:
    """Runs as long as the service does. Each watcher ends with the service, however that ends."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._kept: dict[Key, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """For ever; nothing where the service's settings have no [jobs]."""
        if self._service.settings.file.jobs is None:
            return
        try:
            while True:
                with contextlib.suppress(LedgerError):  # while it cannot be read, nothing changes
                    await self._settle(await asyncio.to_thread(self._wanted))
                await asyncio.sleep(_LOOK_S)
        finally:
            await self._settle(set())

    def _wanted(self) -> set[Key]:
        own = self._service.settings.jobs
        return {(job, event.id) for job, event in self._service.known.registered().items() if job not in own}

    async def _settle(self, wanted: set[Key]) -> None:
        over = [self._kept.pop(key) for key in set(self._kept) - wanted]
        for task in over:
            task.cancel()
        if over:
            await asyncio.wait(over)
        for key in sorted(wanted - set(self._kept)):
            self._kept[key] = asyncio.create_task(self._keep(key[0]))

    async def _keep(self, job: str) -> None:
        """One watcher after the other, the next ones later where they do not last. Why one ended stands in the ledger, once."""
        wait_s, reported = 1.0, ""
        while True:
            begun_s = time.monotonic()
            status, last = await self._watch(job)
            _log.warning("the watcher of %s ended with %s: %s", job, status, last)
            if time.monotonic() - begun_s > _LONGEST_WAIT_S:
                wait_s, reported = 1.0, ""
            if last != reported:
                reported = last
                with contextlib.suppress(LedgerError):
                    await asyncio.to_thread(self._tell, job, f"status {status}: {last}")
            await asyncio.sleep(wait_s)
            wait_s = min(_LONGEST_WAIT_S, 2 * wait_s)

    async def _watch(self, job: str) -> tuple[int, str]:
        """Its exit status and the last line that it said."""
        path = self._service.settings.path
        words = ["-m", "minder", "watch", "--registered", job, *(["--settings", str(path)] if path is not None else [])]
        own = {key: value for key, value in os.environ.items() if key not in SECRET_VARIABLES}  # not for addresses that others name
        environment = {**own, "MINDER_LEDGER": self._service.settings.ledger, PARENT: str(os.getpid())}
        silent = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(
            sys.executable, *words, stdin=silent, stdout=silent, stderr=asyncio.subprocess.PIPE, env=environment, limit=1 << 20
        )
        last = ""
        try:
            assert process.stderr is not None
            while line := await process.stderr.readline():
                last = line.decode(errors="replace").strip() or last
                _log.info("watch %s: %s", job, last)
            return await process.wait(), last[:500]
        finally:
            await _end(process)

    def _tell(self, job: str, detail: str) -> None:
        with Ledger(self._service.settings.ledger) as ledger:
            ledger.append(kinds.DEGRADED, {"what": "the watcher of the job ended; it is started again", "detail": detail}, job=job)


async def _end(process: asyncio.subprocess.Process) -> None:
    for end in (process.terminate, process.kill):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            end()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_S)
