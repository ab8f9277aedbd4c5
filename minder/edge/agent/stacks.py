"""Python stacks of the job's processes and of what they started (data loaders, checkpoint writers) by py-spy, all at once, each with its
own time-out.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.procfs import read_stat, read_tree

__all__ = ["dump_stacks"]

_PER_PROCESS_S = 5.0
_NATIVE_SHARE = 0.6  # of the time that is left: a look without compiled frames must still be possible after it
_MOST_BYTES = 4 << 20
_MOST_CHILDREN = 64
_AT_ONCE = 8
_MOST_REASONS = 3


async def dump_stacks(processes: Sequence[JobProcess], ends_s: float, native: bool = False) -> list[dict[str, Any]]:
    """One entry per process: {"pid", "rank", "parent", "format": "py-spy-json" | "error", "data"}. ends_s on the monotonic clock.

    parent is None for a training process; for one below it, its pid. native: compiled frames too, which holds a process up for a second
    or more. A process that cannot be attached to is evidence too. Training processes come first: beyond 4 MiB in all, stacks become
    errors that say so, and so do those that no time is left for.
    """
    gate = asyncio.Semaphore(_AT_ONCE)
    everyone = [_Target(process.pid, process.rank, None) for process in processes] + _children(processes)
    results = await asyncio.gather(*(_dump_one(target.pid, ends_s, gate, native) for target in everyone))
    entries: list[dict[str, Any]] = []
    left_bytes = _MOST_BYTES
    for (pid, rank, parent), (kind, data, size) in zip(everyone, results, strict=True):
        if size > left_bytes:
            kind, data, size = "error", "left out: the capture is larger than 4 MiB", 0
        left_bytes -= size
        entries.append({"pid": pid, "rank": rank, "parent": parent, "format": kind, "data": data})
    return entries


class _Target(NamedTuple):
    """A process to look at. parent: the training process that started it; None for one that is one."""

    pid: int
    rank: int | None
    parent: int | None


class _Dump(NamedTuple):
    """What came of it. format: as in `dump_stacks`; size: bytes as they were written."""

    format: str
    data: Any
    size: int


def _children(processes: Sequence[JobProcess]) -> list[_Target]:
    """What training processes started, as many of each as fit."""
    own = {process.pid for process in processes}
    share = max(1, _MOST_CHILDREN // max(1, len(processes)))
    below = [(process, [pid for pid in read_tree([process.pid])[1:] if pid not in own]) for process in processes]
    return [_Target(pid, process.rank, process.pid) for process, pids in below for pid in pids[:share]]


async def _dump_one(pid: int, ends_s: float, gate: asyncio.Semaphore, native: bool) -> _Dump:
    program = _find_py_spy()
    if program is None:
        return _Dump("error", "py-spy is not installed beside the agent: pip install py-spy", 0)
    async with gate:
        stat = read_stat(pid)
        if stat is None:
            return _Dump("error", "the process is gone", 0)
        problem = ""
        for mode in _modes(stat.state, native):
            ok, output = await _run([program, "dump", "--json", "--pid", str(pid), *mode], ends_s)
            if not ok and stat.state not in "Tt":
                _let_go(pid)
            if ok:
                try:
                    return _Dump("py-spy-json", _without_commands(json.loads(output)), len(output))
                except ValueError:
                    problem = "py-spy wrote no JSON"
            else:
                reasons = [line.strip() for line in output.decode(errors="replace").splitlines() if line.strip()]
                problem = "; ".join(reasons[:_MOST_REASONS]) or "py-spy failed"  # its error, and below it the reason
        return _Dump("error", problem[:500], 0)


def _modes(state: str, native: bool) -> tuple[list[str], ...]:
    """What to try, best first. A process that is stopped or in uninterruptible sleep cannot be paused for the dump (py-spy waits for
    a stop that never comes), nor need it be; and py-spy reads compiled frames only of one that it has paused."""
    if state in "TtD":
        return (["--nonblocking"],)
    return (*([["--native"]] if native else []), [], ["--nonblocking"])


def _let_go(pid: int) -> None:
    """A py-spy that was killed while it attached may leave the stop behind that it had asked for."""
    stat = read_stat(pid)
    if stat is not None and stat.state == "T":
        try:
            os.kill(pid, signal.SIGCONT)
        except OSError:
            return


async def _run(command: list[str], ends_s: float) -> tuple[bool, bytes]:
    left_s = ends_s - time.monotonic()
    timeout_s = min(_PER_PROCESS_S, _NATIVE_SHARE * left_s if "--native" in command else left_s)
    if timeout_s <= 0:
        return False, b"no time left before the deadline"
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        output, errors = await asyncio.wait_for(process.communicate(), timeout_s)
    except TimeoutError:
        return False, f"py-spy did not answer within {timeout_s:.1f} s".encode()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode == 0, output if process.returncode == 0 else errors


def _without_commands(threads: Any) -> Any:
    """py-spy may tell a process' command line: that never leaves the machine."""
    if isinstance(threads, list):
        for thread in threads:
            if isinstance(thread, dict):
                thread.pop("process_info", None)
    return threads


def _find_py_spy() -> str | None:
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")
