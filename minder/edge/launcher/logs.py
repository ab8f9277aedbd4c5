"""A worker's log file: kept below a size, and read for the steps that a script prints.

Workers write to the file themselves (append mode), so that a launcher that hangs never blocks a print. Rotation copies and
truncates: lines written in between, some milliseconds, are lost.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from minder.edge.signals.steps import StepLine, StepReader, split_lines
from minder.model.private import open_private

__all__ = ["LogFollower"]

_CHUNK_BYTES = 256 * 1024


class LogFollower:
    """Reads what was appended since the last look; starts at the end of what is there. `pattern`: see StepReader."""

    def __init__(self, path: Path, limit_bytes: int, pattern: str | None = None) -> None:
        self._path, self._limit_bytes = path, limit_bytes
        self._offset = path.stat().st_size if path.exists() else 0
        self._rest = b""
        self._own_pattern = self._pattern = pattern
        self._reader = StepReader(pattern)
        self._writer: object = None

    def read_steps(self, writer: object = None) -> list[StepLine]:
        """Steps in the new lines; at most 256 KiB of log are read per look, the newest. Another `writer` (who prints into it, in which
        generation) begins anew."""
        if writer != self._writer:
            self._writer = writer
            self._reader.forget()
        steps = [self._reader.read(line) for line in self._new_lines()]
        self._rotate()
        return [step for step in steps if step is not None]

    def use(self, pattern: str | None) -> None:
        """The job's own pattern from now on; the launcher's goes before it. Raises BadInputError if it cannot be used."""
        if self._own_pattern is None and pattern != self._pattern:
            self._reader, self._pattern = StepReader(pattern), pattern

    def _new_lines(self) -> list[str]:
        try:
            size = self._path.stat().st_size
            if size < self._offset:
                self._offset, self._rest = 0, b""
            if size == self._offset:
                return []
            start = max(self._offset, size - _CHUNK_BYTES)
            with self._path.open("rb") as handle:
                handle.seek(start)
                data = handle.read(size - start)
        except OSError:
            return []
        rest = self._rest if start == self._offset else b""
        lines, rest = split_lines(rest + data)
        self._rest = rest[-_CHUNK_BYTES:]
        self._offset = start + len(data)
        return lines

    def _rotate(self) -> None:
        try:
            if self._path.stat().st_size <= self._limit_bytes:
                return
            open_private(self._path.with_name(self._path.name + ".1"), "ab").close()
            shutil.copyfile(self._path, self._path.with_name(self._path.name + ".1"))
            with self._path.open("rb+") as handle:
                handle.truncate(0)
        except OSError:
            return
        self._offset, self._rest = 0, b""
