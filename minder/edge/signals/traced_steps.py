"""What `minder.trace_step` wrote, for readers elsewhere: the files of this machine's training processes, followed when a reader asks.

Nothing is read before the first reader comes, and at most 4 MiB of a file at a look: of a file that grew by more the newest part. A step is
handed on when it is whole: when a later one of its file has begun, or the file has not grown since the look before. Of several ranks of one
worker (tensor parallelism) the lowest speaks. The job may write in the folder: links are not followed, and what is no row is left out.
"""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["TraceFollower", "trace_folder"]

_NAME = re.compile(r"trace-rank(\d+)-pid(\d+)\.jsonl")
_LOOK_BYTES = 4 << 20
_FIRST_BYTES = 1 << 20
_MOST_STEPS, _MOST_ROWS = 512, 200_000  # that are kept for readers
_MOST_STEP_ROWS = 20_000
_ANSWER_ROWS = 50_000
_LONGEST_LINE_BYTES = 4096
_WHOLE = ("dp_rank", "stage", "rank", "step", "mc", "mb_id")


def trace_folder(environment: Mapping[str, str], run_dir: Path) -> Path:
    """Where trace_step writes, unless the script says otherwise."""
    return Path(environment.get("MINDER_TRACE_DIR") or run_dir / "traces")


class _Worker(NamedTuple):
    """Whose steps a file has."""

    job: str
    dp_rank: int
    stage: int


class _Path(NamedTuple):
    """What the name of a file says."""

    path: Path
    rank: int
    pid: int


@dataclass(slots=True)
class _File:
    """One process's file. rows: of the step that is being read; sound: whether its begin was seen."""

    rank: int
    offset: int | None = None
    rest: bytes = b""
    rows: list[dict[str, Any]] = field(default_factory=list)
    sound: bool = True
    worker: _Worker | None = None


class TraceFollower:
    """`look`, then `since`. folder: see trace_folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[Path, _File] = {}
        self._steps: deque[dict[str, Any]] = deque()
        self._rows = 0
        self._lock = threading.Lock()  # several readers ask
        self.next = 0

    def look(self, jobs: Mapping[int, str]) -> None:
        """Read what was written since the look before. jobs: the training processes that run now, pid to the name of its job."""
        known = self._files
        live = [(path, rank, jobs[pid]) for path, rank, pid in self._paths() if pid in jobs]
        self._files = {path: known.get(path) or _File(rank) for path, rank, _ in live}
        for path, _, job in live:
            self._read(path, self._files[path], job)

    def answer(self, number: int, jobs: Mapping[int, str]) -> dict[str, Any]:
        """`look` and `since` as the answer to a reader: {"steps": [...], "next": number}."""
        with self._lock:
            self.look(jobs)
            steps, following = self.since(number)
        return {"steps": steps, "next": following}

    def since(self, number: int) -> tuple[list[dict[str, Any]], int]:
        """Steps from `number` on, at most about 50,000 operations, and the number to ask for next."""
        begin = self.next - len(self._steps)
        steps: list[dict[str, Any]] = []
        rows, at = 0, min(max(number, begin), self.next)
        for step in list(self._steps)[at - begin :]:
            rows += len(step["kind"])
            if steps and rows > _ANSWER_ROWS:
                break
            steps.append(step)
        return steps, at + len(steps)

    def _paths(self) -> list[_Path]:
        """By rank, so that the lowest of a worker comes first."""
        try:
            names = os.listdir(self.folder)  # noqa: PTH208
        except OSError:
            return []
        matches = [match for name in names if (match := _NAME.fullmatch(name))]
        found = [_Path(self.folder / match[0], int(match[1]), int(match[2])) for match in matches]
        newest: dict[int, _Path] = {}  # a process that was given another rank has two files
        for item in sorted(found, key=lambda item: _changed_ns(item.path)):
            newest[item.pid] = item
        return sorted(newest.values(), key=lambda item: (item.rank, item.pid))

    def _read(self, path: Path, file: _File, job: str) -> None:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(handle, "rb") as opened:
                size = os.fstat(handle).st_size
                begin = max(0, size - _FIRST_BYTES) if file.offset is None else file.offset
                skipped = size - begin > _LOOK_BYTES or (file.offset is None and begin > 0)
                begin = max(begin, size - _LOOK_BYTES)
                opened.seek(begin)
                data = opened.read(_LOOK_BYTES)
        except OSError:
            return
        if skipped:  # in the middle of a line, and of a step
            file.rest, file.rows, file.sound = b"", [], False
            data = data.partition(b"\n")[2]
            begin = size - len(data)
        file.offset = begin + len(data)
        *lines, rest = (file.rest + data).split(b"\n")
        file.rest = rest[-_LONGEST_LINE_BYTES:]
        for line in lines:
            self._add(file, _row(line), job)
        if not data and not file.rest and file.rows:
            self._close(file, job)

    def _add(self, file: _File, row: dict[str, Any] | None, job: str) -> None:
        if row is None:
            file.sound = False
            return
        if file.rows and row["step"] != file.rows[0]["step"]:
            self._close(file, job)
        if len(file.rows) >= _MOST_STEP_ROWS:
            file.sound = False
            return
        file.rows.append(row)

    def _close(self, file: _File, job: str) -> None:
        """The step that was read is whole, or as whole as it will be."""
        rows, sound = file.rows, file.sound
        file.rows, file.sound = [], True
        file.worker = _Worker(job, rows[0]["dp_rank"], rows[0]["stage"])
        if not sound or any(other.worker == file.worker and other.rank < file.rank for other in self._files.values()):
            return
        self._steps.append(_compact(rows, job))
        self._rows += len(rows)
        self.next += 1
        while len(self._steps) > 1 and (self._rows > _MOST_ROWS or len(self._steps) > _MOST_STEPS):
            self._rows -= len(self._steps.popleft()["kind"])


def _changed_ns(path: Path) -> int:
    try:
        return path.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def _row(line: bytes) -> dict[str, Any] | None:
    """None for what is no row of a step trace."""
    try:
        row = json.loads(line)
        found: dict[str, Any] = {name: int(row[name]) for name in _WHOLE}
        found |= {"begin": float(row["start_ts"]), "seconds": float(row["duration"]), "optype": str(row["optype"])[:64]}
    except (ValueError, TypeError, KeyError, OverflowError):
        return None
    good = math.isfinite(found["begin"]) and math.isfinite(found["seconds"]) and found["seconds"] >= 0.0
    return found if good and all(abs(found[name]) < 2**31 for name in _WHOLE if name != "step") else None


def _compact(rows: list[dict[str, Any]], job: str) -> dict[str, Any]:
    """One worker's step by columns; begin: seconds after begin_s, which is unix time of this machine."""
    first, begin_s = rows[0], min(row["begin"] for row in rows)
    kinds = list(dict.fromkeys(row["optype"] for row in rows))
    return {
        "job": job,
        **{name: first[name] for name in ("dp_rank", "stage", "rank", "step")},
        "begin_s": begin_s,
        "kinds": kinds,
        "kind": [kinds.index(row["optype"]) for row in rows],
        "begin": [round(row["begin"] - begin_s, 7) for row in rows],
        "seconds": [row["seconds"] for row in rows],
        "mb": [row["mb_id"] for row in rows],
        "mc": [row["mc"] for row in rows],
    }
