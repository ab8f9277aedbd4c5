"""The planner's log: an append-only file of each rank that says which batch it was given at which step.

    begin 2 {"time": ..., "plan": {...}, "rank": 0, "world": 8, "step": 300, "skipped": "", "generation": 2}
    2 301 301 8f0c5d0a7be21c44
    loader 2 302 {"time": ..., "end": "killed by SIGKILL"}

A line of a step has the number of the process in this file, step, batch, and the fingerprint of the samples that were read. Each line is
one write, so that a killed process leaves whole lines. The older half of the file goes when it grows beyond its bound.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minder.model.errors import DataError

__all__ = ["StepRecord", "older_half", "record_path"]

_TAIL_BYTES = 4096


class StepRecord:
    """Appends to the file of `rank` in `folder`. about: what the begin line says. Raises DataError where it cannot be written.

    No flush to disk: a killed process loses nothing, a machine without power its last seconds.
    """

    def __init__(self, folder: Path, rank: int, about: Mapping[str, Any], most_bytes: int = 64 * 2**20) -> None:
        self._path, self._most = record_path(folder, rank), most_bytes // 2
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._number = _newest_number(self._path) + 1
            self._file = _open(self._path)
        except OSError as error:
            raise DataError(f"the log of the data cannot be written: {self._path}: {error.strerror}; give a log_dir that can be") from error
        self._begin = f"begin {self._number} {json.dumps({'time': time.time(), **about})}\n"
        self._room = self._most - os.fstat(self._file).st_size
        self._append(self._begin)

    def step(self, step: int, batch: int, fingerprint: int) -> None:
        """A batch goes to the training loop. A disk that is full costs lines, and no step: the check says which are missing."""
        self._append(f"{self._number} {step} {batch} {fingerprint:016x}\n")

    def replaced(self, step: int, end: str) -> None:
        """A loader process ended while the batch of `step` was waited for."""
        self._append(f"loader {self._number} {step} {json.dumps({'time': time.time(), 'end': end})}\n")

    def close(self) -> None:
        os.close(self._file)

    def _append(self, line: str) -> None:
        data = line.encode()
        try:
            if self._room < len(data):
                self._turn_over()
            os.write(self._file, data)
        except OSError:
            return
        self._room -= len(data)

    def _turn_over(self) -> None:
        self._path.replace(older_half(self._path))
        os.close(self._file)
        self._file = _open(self._path)
        self._room = self._most - os.write(self._file, self._begin.encode())


def record_path(folder: Path, rank: int) -> Path:
    """The file of a rank."""
    return folder / f"rank-{rank:05}.log"


def older_half(path: Path) -> Path:
    """What was written before the file last became too large."""
    return path.with_suffix(".log.1")


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def _newest_number(path: Path) -> int:
    """Of the processes that have written here: in the last whole line, 0 for an empty file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").split("\n")
    except FileNotFoundError:
        return 0
    for line in reversed(lines):
        words = line.split(" ", 2)
        number = words[1] if words[0] in ("begin", "loader") and len(words) > 1 else words[0]
        if number.isdecimal():
            return int(number)
    return 0
