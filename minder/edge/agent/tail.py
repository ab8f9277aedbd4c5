"""A file that grows, followed from its end on: through truncation, renaming (logrotate) and absence."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from minder.edge.signals.steps import split_lines

__all__ = ["Tail"]


class Tail:
    """`lines` gives what was appended since the last call, in whole lines and at most `chunk_bytes`, the newest.

    from_start: what is there at the first look counts too. problem: why it could not be read at the last call, "" if it could or is
    not there.
    """

    def __init__(self, path: Path, chunk_bytes: int, from_start: bool = False) -> None:
        self.path = path
        self.problem = ""
        self.chunk_bytes = chunk_bytes
        self._handle: int | None = None
        self._inode = 0
        self._offset = 0
        self._rest = b""
        self._opened_before = from_start

    def open(self) -> bool:
        """The first time at the end of what is there: yesterday's lines are none of today's."""
        try:
            self._handle = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            self.problem = "" if isinstance(error, FileNotFoundError) else str(error.strerror)
            self._opened_before = True
            return False
        status = os.fstat(self._handle)
        if stat.S_ISDIR(status.st_mode):
            self.problem = os.strerror(errno.EISDIR)
            self.close()
            return False
        self._inode, self._rest, self.problem = status.st_ino, b"", ""
        self._offset = 0 if self._opened_before else status.st_size
        self._opened_before = True
        return True

    def lines(self) -> list[str]:
        found = self._read()
        if self._was_replaced():  # what the old file still held is read; now the new one, from its beginning
            self.close()
            found += self._read()
        return found

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _read(self) -> list[str]:
        if self._handle is None and not self.open():
            return []
        assert self._handle is not None
        try:
            size = os.fstat(self._handle).st_size
            if size < self._offset:
                self._offset, self._rest = 0, b""
            start = max(self._offset, size - self.chunk_bytes)
            data = os.pread(self._handle, self.chunk_bytes, start) if size > start else b""
        except OSError as error:
            self.problem = str(error.strerror)
            self.close()
            return []
        skipped = start > self._offset
        lines, rest = split_lines((b"" if skipped else self._rest) + data)
        self._rest = rest[-self.chunk_bytes :]
        self._offset = start + len(data)
        return lines[1:] if skipped else lines  # what was skipped ended inside a line

    def _was_replaced(self) -> bool:
        if self._handle is None:
            return False
        try:
            return self.path.stat().st_ino != self._inode
        except OSError:
            return False
