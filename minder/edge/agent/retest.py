"""The site's test of this machine, run on request: before a machine that was evicted is given back.

The command, or the probes that stand in its place, are named at the agent's start and nowhere else: the caller chooses when, never what. It
runs once per operation, one at a time, and never beside training processes. A command says by itself whether the machine passed; probes
measure, and the caller compares the numbers with equal machines.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import time
from dataclasses import dataclass
from typing import Any

from minder.edge.probes.orders import OperationRun, Probing
from minder.model.errors import BadInputError
from minder.wire.codec import to_json

__all__ = ["RetestRequest", "Retests", "parse_retest", "split_command"]

_TOLD_BYTES = 4000
_KEPT = 100
_LONGEST_WAIT_S = 50.0


@dataclass(frozen=True, slots=True)
class RetestRequest:
    """operation: its name in the ledger. wait_s: how long the caller waits for the end of it."""

    operation: str
    wait_s: float


def parse_retest(body: Any) -> RetestRequest:
    """From a decoded JSON body. Raises BadInputError that names the field."""
    operation = body.get("operation") if isinstance(body, dict) else None
    wait_s = body.get("wait_s", 0.0) if isinstance(body, dict) else None
    if not isinstance(operation, str) or not 1 <= len(operation) <= 255:
        raise BadInputError('the body must be an object such as {"operation": "retest-1", "wait_s": 20}: operation is missing')
    if not isinstance(wait_s, (int, float)) or isinstance(wait_s, bool) or not 0.0 <= wait_s <= _LONGEST_WAIT_S:
        raise BadInputError(f"wait_s is {wait_s!r}: a number of seconds from 0 to {_LONGEST_WAIT_S:g}")
    return RetestRequest(operation, float(wait_s))


def split_command(text: str | None) -> tuple[str, ...]:
    """A command line as words; none for none. Raises BadInputError."""
    try:
        return tuple(shlex.split(text or ""))
    except ValueError as error:
        raise BadInputError(f"--retest {text!r} is no command: {error}") from error


class Retests:
    """`ask` starts an operation's test, or finds what came of it; what the last hundred said is remembered as long as the agent runs."""

    def __init__(self, command: tuple[str, ...], deadline_s: float, probes: tuple[str, ...] = (), probing: Probing | None = None) -> None:
        """probes: run in the command's place by `probing`, which runs the orders of probes of this machine too."""
        self._command, self._deadline_s = command, deadline_s
        self._probes, self._probing = probes, probing
        self._runs: dict[str, OperationRun] = {}

    async def ask(self, request: RetestRequest, training: bool) -> dict[str, Any]:
        """{"operation", "state": running | passed | failed | measured | refused, "detail", "seconds", "conclusive", "results"}. training:
        processes of a job run here. conclusive: the test ran to its end, so that a failure is the machine's. results: of probes, which
        "measured" leaves to the caller's judgement."""
        run = self._runs.get(request.operation)
        if run is None:
            why = self._refusal(training)
            if why:
                return {"operation": request.operation, "state": "refused", "detail": why, "seconds": 0.0}
            run = self._runs[request.operation] = OperationRun(time.monotonic())
            run.task = asyncio.create_task(self._test(run))
            while len(self._runs) > _KEPT:
                del self._runs[next(iter(self._runs))]
        if run.task is not None and run.state == "running":
            await asyncio.wait({run.task}, timeout=request.wait_s)
        seconds = run.seconds if run.state != "running" else time.monotonic() - run.begun_s
        answer = {"operation": request.operation, "state": run.state, "detail": run.detail, "seconds": round(seconds, 1)}
        return answer | {"conclusive": run.conclusive} | ({"results": to_json(run.results)} if run.results else {})

    def _refusal(self, training: bool) -> str:
        if not self._command and not self._probes:
            return "this agent has no test of its machine: start it with --retest COMMAND, or --retest-probes NAMES"
        if training:
            return "training processes run on this machine: a test would disturb them"
        if self.busy or (self._probing is not None and self._probing.busy):
            return "another test of this machine is under way"
        return ""

    @property
    def busy(self) -> bool:
        return any(run.state == "running" for run in self._runs.values())

    async def _test(self, run: OperationRun) -> None:
        if self._probes and self._probing is not None:
            await self._measure(run, self._probing)
            return
        shown = shlex.join(self._command)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._end(run, "failed", f"`{shown}` cannot be run: {error.strerror}")
            return
        try:
            output = await asyncio.wait_for(_tail(process), self._deadline_s)
        except TimeoutError:
            self._end(run, "failed", f"`{shown}` did not end within {self._deadline_s:g} s")
            return
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
            await process.wait()
        run.conclusive = process.returncode is not None and process.returncode >= 0
        state = "passed" if process.returncode == 0 else "failed"
        self._end(run, state, f"`{shown}` ended with status {process.returncode}" + (f": {output}" if output else ""))

    async def _measure(self, run: OperationRun, probing: Probing) -> None:
        """Each probe has its own limit; all of them have this one."""
        try:
            run.results = await asyncio.wait_for(probing.test(self._probes), self._deadline_s)
        except TimeoutError:
            self._end(run, "failed", f"the probes {', '.join(self._probes)} did not end within {self._deadline_s:g} s")
            return
        run.conclusive = True
        faults = [f"{result.probe}: {result.detail}" for result in run.results if result.state == "failed"]
        summary = "; ".join(faults) or f"{', '.join(self._probes)} measured: the numbers are compared by a controller that knows probes"
        self._end(run, "failed" if faults else "measured", summary)

    @staticmethod
    def _end(run: OperationRun, state: str, detail: str) -> None:
        run.state, run.detail, run.seconds = state, detail, time.monotonic() - run.begun_s


async def _tail(process: asyncio.subprocess.Process) -> str:
    """The end of what it said, as one line; however much that is."""
    kept = b""
    assert process.stdout is not None
    while block := await process.stdout.read(65536):
        kept = (kept + block)[-_TOLD_BYTES:]
    await process.wait()
    return " ".join(kept.decode(errors="replace").split())[-300:]
