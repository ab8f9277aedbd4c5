"""Runs one probe as a process of its own: under a time limit, in a process group that is killed at its end. What goes wrong is a result.

A crash, a time-out or an output that is no document is "not judged", with the reason: it is never a pass, and never a fault of the
machine by itself.

A probe's own limit is for a machine that is its own. Seconds in which it could run and had no processor (minder.edge.probes.starved) are
added to it, up to MOST times the limit: a busy host is no finding. A limit that an order gives is the caller's patience, and is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from minder.edge.probes.contract import Program
from minder.edge.probes.starved import starved_s
from minder.model.errors import WireError
from minder.model.probes import ProbeResult, ProbeState
from minder.model.resources import child_python_path
from minder.wire.codec import from_json

__all__ = ["MOST", "Ended", "run_child", "run_probe"]

MOST = 5.0  # times its limit: so long a probe has at most on a busy machine
_WORTH_S = 0.1  # less than this is no longer added
_LARGEST_BYTES = 1 << 20
_TAIL_BYTES = 4000
_LEFT_OPEN_S = 2.0
# A process with RANK and WORLD_SIZE would be taken for one of the job; a token is none of a probe's business.
_JOBS_OWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended. status: None where it was killed after its limit; negative: by that signal. error: its last line on standard
    error. whole: it said no more than is read. added_s: what its limit was made longer by, since it had to wait for a processor."""

    status: int | None
    output: bytes = b""
    error: str = ""
    whole: bool = True
    added_s: float = 0.0


async def run_probe(program: Program, options: Mapping[str, Any], *, limit_s: float | None = None, nice: int = 0) -> ProbeResult:
    """Whatever the program does, a result: raises nothing of its own. limit_s: an order's, which holds whatever the machine is busy
    with; it lengthens the probe's own no further than a busy machine does."""
    probe = program.probe
    most_s = min(MOST * probe.limit_s, limit_s or math.inf)
    limit_s = min(probe.limit_s, most_s)
    words = ["--json", "--options", "-", "--limit", f"{most_s:g}", "--nice", str(nice)]
    started_s, begun = time.time(), time.monotonic()
    ended = await run_child([sys.executable, "-P", str(program.path), *words], limit_s, json.dumps(dict(options)).encode(), most_s)
    found = _read(probe.name, probe.version, ended, limit_s)
    if nice and any(item.better in ("higher", "lower") for item in found.measures):
        found = replace(found, facts={**found.facts, "priority": "low"})  # speed beside other work compares with its like only
    return replace(found, sha256=program.sha256, started_s=started_s, seconds=round(time.monotonic() - begun, 3))


async def run_child(command: Sequence[str], limit_s: float, text: bytes = b"", most_s: float | None = None) -> Ended:
    """Runs until it ends or the limit is over, and then kills all that it started. Cancelled, it kills them too. text: on its standard
    input, where it is seen by no other process of the machine; a few kilobytes. most_s: the limit where it has to wait for a processor."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            start_new_session=True, env=_environment(),
        )  # fmt: skip
    except OSError as error:
        return Ended(127, error=f"{command[0]} cannot be run: {error.strerror}")
    assert process.stdin is not None
    process.stdin.write(text)  # it fits into the pipe
    process.stdin.close()
    output, complaint = _Kept(_LARGEST_BYTES, first=True), _Kept(_TAIL_BYTES, first=False)
    reading = asyncio.ensure_future(asyncio.gather(output.read(process.stdout), complaint.read(process.stderr)))
    allowed_s: float | None = None
    try:
        allowed_s = await _outlasts(process, limit_s, limit_s if most_s is None else most_s)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also what it left behind
        await process.wait()
        await asyncio.wait({reading}, timeout=_LEFT_OPEN_S)  # what left the group may hold the pipes open
        reading.cancel()
    status, added_s = (process.returncode, 0.0) if allowed_s is None else (None, allowed_s - limit_s)
    return Ended(status, bytes(output.data), complaint.last_line(), output.whole, added_s)


async def _outlasts(process: asyncio.subprocess.Process, limit_s: float, most_s: float) -> float | None:
    """The seconds that it was allowed and did not end within; None where it ended. The more it had to wait for a processor, the more."""
    begun, allowed_s = time.monotonic(), limit_s
    while True:
        try:
            await asyncio.wait_for(process.wait(), begun + allowed_s - time.monotonic())
        except TimeoutError:
            longer_s = min(limit_s + starved_s(process.pid), most_s)
            if longer_s < allowed_s + _WORTH_S:
                return allowed_s
            allowed_s = longer_s
        else:
            return None


class _Kept:
    """The first or the last bytes of a stream, which is read to its end."""

    def __init__(self, most: int, *, first: bool) -> None:
        self.data, self.whole = bytearray(), True
        self._most, self._first = most, first

    async def read(self, stream: asyncio.StreamReader | None) -> None:
        assert stream is not None
        while block := await stream.read(65536):
            self.data += block
            if len(self.data) > self._most:
                self.whole = False
                del self.data[slice(self._most, None) if self._first else slice(-self._most)]

    def last_line(self) -> str:
        lines = [line.strip() for line in self.data.decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][:300] if lines else ""


def _read(name: str, version: int, ended: Ended, limit_s: float) -> ProbeResult:
    """The child's document as a record; where there is none, the reason."""
    said = f": {ended.error}" if ended.error else ""
    if ended.status is None:
        busy = f", with {ended.added_s:.0f} s more for a busy machine" if ended.added_s else ""
        return _unknown(name, version, f"it did not end within {limit_s:g} s{busy}, and was killed{said}")
    if ended.status < 0:
        return _unknown(name, version, f"it was ended by {_signal_name(-ended.status)}{said}")
    if ended.status:
        return _unknown(name, version, f"it ended with status {ended.status}{said}")
    if not ended.whole:
        return _unknown(name, version, f"it printed more than {_LARGEST_BYTES >> 20} MiB")
    try:
        data = json.loads(ended.output)
        found = from_json(ProbeResult, data)
    except (ValueError, WireError) as error:
        return _unknown(name, version, f"it printed no document of a probe: {str(error)[:200]}")
    why = _contradiction(found, name, version)
    return _unknown(name, version, why) if why else found


def _contradiction(found: ProbeResult, name: str, version: int) -> str:
    if (found.probe, found.version) != (name, version):
        return f"it says that it is {found.probe} version {found.version}"
    if found.state not in get_args(ProbeState):
        return f'it says "{found.state}", which is no state of a probe'
    wrong = next((item for item in found.measures if not math.isfinite(item.value)), None)
    if wrong is not None:
        return f"its {wrong.name} is {wrong.value}"
    return "it measured nothing" if found.state == "measured" and not found.measures and not found.data else ""


def _unknown(name: str, version: int, why: str) -> ProbeResult:
    return ProbeResult(name, version, "not_judged", why)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _environment() -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if name not in _JOBS_OWN and "TOKEN" not in name}
    return {**kept, "PYTHONUNBUFFERED": "1", **child_python_path()}
