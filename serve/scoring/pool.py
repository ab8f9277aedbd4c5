"""Processes that read uploads, kept warm: each takes one at a time, and is replaced when it dies or takes too long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from minder.model.errors import BadInputError, MinderError
from serve.settings import Limits

__all__ = ["Busy", "Order", "ScoringPool", "What"]

_log = logging.getLogger("minder.serve")
_START_S = 60.0
What = Literal["scores", "rows", "stacks", "collectives"]
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "HOME", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "MINDER_LOG_FORMAT")
_THREADS = {"POLARS_MAX_THREADS": "2", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}


class Busy(MinderError):
    """More uploads wait already than the service takes."""


@dataclass(frozen=True, slots=True)
class Order:
    """One upload to read. until_s: only what was known then (unix seconds). what: telemetry to score, rows of a session, or dumps of one
    kind. newest_s: time of the session's newest row."""

    folder: Path
    name: str
    until_s: float | None = None
    what: What = "scores"
    newest_s: float | None = None


class ScoringPool:
    """At most `scoring_workers` processes; started on first use. `close` ends them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._free: list[asyncio.subprocess.Process] = []
        self._turn = asyncio.Semaphore(limits.scoring_workers)
        self._waiting = 0

    async def score(self, order: Order) -> dict[str, Any]:
        """Fields of ScoreResult, StacksResult or CollectivesResult, or what serve.scoring.rows says. Raises BadInputError with one line for
        the sender, Busy."""
        async with self._place():
            self._free = [worker for worker in self._free if worker.returncode is None]  # one may have been killed meanwhile
            worker = self._free.pop() if self._free else await self._start()
            async with AsyncExitStack() as undo:  # it died, or its sender went away and it is in the middle of something
                undo.push_async_callback(_discard, worker)
                try:
                    await asyncio.wait_for(self._run(worker, order), self._limits.scoring_s)
                except TimeoutError:
                    raise BadInputError(
                        f"scoring took longer than {self._limits.scoring_s:g} s: send a shorter time, or fewer machines"
                    ) from None
                undo.pop_all()
            self._free.append(worker)
        answer = json.loads((order.folder / "result.json").read_bytes())
        if "refused" in answer:
            raise BadInputError(answer["refused"])
        found: dict[str, Any] = answer["result"]
        return found

    async def close(self) -> None:
        for worker in self._free:
            await _end(worker)
        self._free.clear()

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        if self._waiting >= self._limits.scoring_queue + self._limits.scoring_workers:
            raise Busy("too many uploads wait already: try again in some seconds")
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1

    async def _run(self, worker: asyncio.subprocess.Process, order: Order) -> None:
        assert worker.stdin is not None and worker.stdout is not None
        limits = self._limits
        bounds = {
            "rows": limits.upload_rows,
            "machines": limits.upload_machines,
            "span_s": limits.upload_span_s,
            "cells": limits.upload_cells,
        }
        message = {
            "what": order.what,
            "folder": str(order.folder),
            "name": order.name,
            "until_s": order.until_s,
            "newest_s": order.newest_s,
        }
        with contextlib.suppress(ConnectionError):  # it died before: the empty answer says so
            worker.stdin.write(json.dumps(message | {"bounds": bounds}).encode() + b"\n")
            await worker.stdin.drain()
        if await worker.stdout.readline() != b"done\n":
            raise BadInputError("the upload cannot be read: what read it died of it, or needed more memory than an upload may take")

    async def _start(self) -> asyncio.subprocess.Process:
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ} | _THREADS
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "serve.scoring.worker", str(self._limits.scoring_bytes),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environment,
        )  # fmt: skip
        assert worker.stdout is not None
        async with AsyncExitStack() as undo:
            undo.push_async_callback(_discard, worker)
            if await asyncio.wait_for(worker.stdout.readline(), _START_S) != b"ready\n":
                raise MinderError("the scoring process did not start: see the service's log")
            undo.pop_all()
        return worker


async def _discard(worker: asyncio.subprocess.Process) -> None:
    await _end(worker)
    _log.warning("a scoring process was ended before its upload was: status %s", worker.returncode)


async def _end(worker: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        worker.kill()
    await worker.wait()
