"""Finding and ending the processes of a lab by the mark in their environment, which children inherit whatever session they move to."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from minder.simulate.lab.record import start_ticks

__all__ = ["LAB_VARIABLE", "MACHINE_VARIABLE", "OWNER_VARIABLE", "all_pids", "end_processes", "marked_processes", "read_mark"]

LAB_VARIABLE = "MINDER_LAB"
MACHINE_VARIABLE = "MINDER_LAB_MACHINE"
OWNER_VARIABLE = "MINDER_LAB_OWNER"


def marked_processes(variable: str, value: str) -> list[int]:
    """Living processes whose environment says `variable=value`. Those of other users cannot be read and are left out."""
    return [pid for pid in all_pids() if read_mark(pid, variable) == value and start_ticks(pid) is not None]


def read_mark(pid: int, variable: str) -> str | None:
    """One variable of another process's environment as it was at its start, or None."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    prefix = variable.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return entry[len(prefix) :].decode(errors="replace")
    return None


def end_processes(find: Callable[[], list[int]], deadline_s: float = 5.0) -> bool:
    """SIGKILL what `find` returns until it returns nothing twice. False at the deadline.

    Twice: a process that is being forked while /proc is listed can be missing from one look at it.
    """
    end_s = time.monotonic() + deadline_s
    empty = 0
    while empty < 2:
        pids = [pid for pid in find() if pid != os.getpid()]
        empty = 0 if pids else empty + 1
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if pids and time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


def all_pids() -> Iterator[int]:
    """Every pid but our own."""
    own = os.getpid()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != own:
            yield int(entry.name)
