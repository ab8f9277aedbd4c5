"""Flight Recorder dumps of the machine's training processes: asked for, waited for, handed on as they are. Nothing in them is read here.

A process writes its dump into `<run dir>/dumps` when `ask` there is touched (minder.edge.worker.dumps), and on a
timer: what does not answer,
or has died, leaves its last one.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.edge.exporters.jobs import JobProcess
from minder.model.errors import BadInputError
from minder.model.private import make_meeting, meeting_mode

__all__ = ["collect_dumps", "parse_deadline"]

_LOOK_S = 0.1
_MOST_BYTES = 4 << 20
_MOST_IN_ALL_BYTES = 16 << 20
_OLD_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Kept:
    """One file: what its process wrote above the dump, and the dump."""

    header: dict[str, Any]
    data: bytes

    @property
    def time_s(self) -> float:
        return float(self.header["time_s"])


def parse_deadline(body: Any) -> float:
    """Seconds from a decoded JSON body. Raises BadInputError that names the field."""
    value = body.get("deadline_s", 5.0) if isinstance(body, dict) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0.1 <= value <= 60.0:
        raise BadInputError(f'the body must be an object such as {{"deadline_s": 5}}, with a number from 0.1 to 60; got {value!r}')
    return float(value)


async def collect_dumps(run_dir: Path, processes: Sequence[JobProcess], deadline_s: float) -> list[dict[str, Any]]:
    """One entry per training process, and per rank of the same jobs that died within the hour: {"pid", "rank", "generation", "time_s",
    "since_s", "answered", "format": "fr-pickle" | "error", "data": base64 or the reason}. Times are unix seconds of this machine.
    """
    folder, asked_s = run_dir / "dumps", time.time()
    problem = _ask(folder)
    ends_s = time.monotonic() + deadline_s
    kept = await asyncio.to_thread(_read_all, folder)
    wanted = {process.pid for process in processes} & {item.header["pid"] for item in kept}  # who has left none keeps none
    while not problem and not wanted <= _answered(kept, asked_s) and time.monotonic() < ends_s:
        await asyncio.sleep(_LOOK_S)
        kept = await asyncio.to_thread(_read_all, folder)
    return _rows(processes, kept, asked_s, problem)


def _ask(folder: Path) -> str:
    """What hinders it, "" mostly."""
    try:
        make_meeting(folder.parent, folder.name)
        (folder / "ask").touch(meeting_mode(folder))
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    return ""


def _answered(kept: Collection[_Kept], asked_s: float) -> set[int]:
    return {item.header["pid"] for item in kept if item.time_s >= asked_s}


def _rows(processes: Sequence[JobProcess], kept: Collection[_Kept], asked_s: float, problem: str) -> list[dict[str, Any]]:
    by_pid = {item.header["pid"]: item for item in kept}
    jobs, ranks = {process.job for process in processes}, {process.rank for process in processes}
    rows, left_bytes = [], _MOST_IN_ALL_BYTES
    why = problem or "it keeps no dumps: start it with `minder launch`, or call minder.keep_dumps()"
    for process in processes:
        item = by_pid.pop(process.pid, None)
        if item is None or len(item.data) > left_bytes:
            reason = why if item is None else "left out: the dumps are larger than 16 MiB"
            rows.append({"pid": process.pid, "rank": process.rank, "format": "error", "data": reason})
            continue
        left_bytes -= len(item.data)
        rows.append(_row(item, asked_s))
    for item in sorted(by_pid.values(), key=lambda item: -item.time_s):
        rank = item.header.get("rank")
        known = rank in ranks or (jobs and item.header.get("job") not in jobs)
        if not known and item.time_s > asked_s - _OLD_S and len(item.data) <= left_bytes:
            ranks.add(rank)
            left_bytes -= len(item.data)
            rows.append(_row(item, asked_s))
    return rows


def _row(item: _Kept, asked_s: float) -> dict[str, Any]:
    header = {name: item.header.get(name) for name in ("pid", "rank", "generation", "time_s", "since_s")}
    return {**header, "answered": item.time_s >= asked_s, "format": "fr-pickle", "data": base64.b64encode(item.data).decode()}


def _read_all(folder: Path) -> list[_Kept]:
    """Files that are whole; the others are as good as missing."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith("pid-")]  # noqa: PTH208
    except OSError:
        return []
    return [item for name in names if (item := _read(folder / name)) is not None]


def _read(path: Path) -> _Kept | None:
    """The job may write here: a link to another file is not followed."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            line, _, data = file.read(_MOST_BYTES + 4096).partition(b"\n")
        header = json.loads(line)
        numbers = [header["time_s"], header["since_s"], header["pid"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    good = all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers)
    return _Kept(header, data) if good and len(data) <= _MOST_BYTES else None
