"""Python stacks of the job's processes by py-spy, all at once, each with its own time-out."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minder.telemetry.exporters.jobs import JobProcess
from minder.telemetry.exporters.procfs import read_stat

__all__ = ["dump_stacks"]

_PER_PROCESS_S = 5.0
_MOST_BYTES = 4 << 20
_AT_ONCE = 8


async def dump_stacks(processes: Sequence[JobProcess], ends_s: float) -> list[dict[str, Any]]:
    """One entry per process: {"pid", "rank", "format": "py-spy-json" | "error", "data"}. ends_s on the monotonic clock.

    A process that cannot be attached to is evidence too. Beyond 4 MiB in all, stacks become errors that say so.
    """
    gate = asyncio.Semaphore(_AT_ONCE)
    results = await asyncio.gather(*(_dump_one(process.pid, ends_s, gate) for process in processes))
    entries: list[dict[str, Any]] = []
    left_bytes = _MOST_BYTES
    for process, (kind, data, size) in zip(processes, results, strict=True):
        if size > left_bytes:
            kind, data, size = "error", "left out: the capture is larger than 4 MiB", 0
        left_bytes -= size
        entries.append({"pid": process.pid, "rank": process.rank, "format": kind, "data": data})
    return entries


async def _dump_one(pid: int, ends_s: float, gate: asyncio.Semaphore) -> tuple[str, Any, int]:
    program = _find_py_spy()
    if program is None:
        return "error", "py-spy is not installed beside the agent: pip install py-spy", 0
    async with gate:
        stat = read_stat(pid)
        if stat is None:
            return "error", "the process is gone", 0
        # A stopped process cannot be paused for the dump (py-spy waits for a stop that never comes), nor need it be.
        modes = (["--nonblocking"],) if stat.state in "Tt" else ([], ["--nonblocking"])
        problem = ""
        for mode in modes:
            ok, output = await _run([program, "dump", "--json", "--pid", str(pid), *mode], ends_s)
            if ok:
                try:
                    return "py-spy-json", _without_commands(json.loads(output)), len(output)
                except ValueError:
                    problem = "py-spy wrote no JSON"
            else:
                problem = output.decode(errors="replace").strip().splitlines()[0] if output.strip() else "py-spy failed"
        return "error", problem[:500], 0


async def _run(command: list[str], ends_s: float) -> tuple[bool, bytes]:
    timeout_s = min(_PER_PROCESS_S, ends_s - time.monotonic())
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
