"""What workers print, on the terminal that they were started from. The workers write to files: nothing here can block them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path

__all__ = ["OutputTail"]

_LOOK_S = 0.1
_CHUNK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 1 << 20


class OutputTail:
    """Writes the whole lines that are appended to each file, with the file's prefix. A context manager: the rest comes at its end.

    Of a progress bar that redraws its line only the last state is shown. write: called in a thread of its own, one line each.
    """

    def __init__(self, paths: Mapping[str, Path], write: Callable[[str], None]) -> None:
        self._tails = [_Tail(prefix, path) for prefix, path in paths.items()]
        self._write = write
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="minder-output", daemon=True)

    def __enter__(self) -> OutputTail:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._stop.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        try:
            while not self._stop.wait(_LOOK_S):
                self._show()
            while self._show():
                pass
            for tail in self._tails:
                if tail.rest:
                    self._write(tail.show(tail.rest))
        except (BrokenPipeError, ValueError):
            return  # no reader any more: the job goes on, its files have everything

    def _show(self) -> bool:
        lines = [line for tail in self._tails for line in tail.read()]
        for line in lines:
            self._write(line)
        return bool(lines)


class _Tail:
    """One file, from where it ends now."""

    def __init__(self, prefix: str, path: Path) -> None:
        self._prefix, self._path = prefix, path
        self._offset = path.stat().st_size if path.exists() else 0
        self.rest = b""

    def read(self) -> list[str]:
        try:
            with self._path.open("rb") as handle:
                size = handle.seek(0, 2)
                if size < self._offset:  # its launcher keeps logs small: copied away and emptied
                    self._offset, self.rest = 0, b""
                handle.seek(self._offset)
                data = handle.read(_CHUNK_BYTES)
        except OSError:
            return []
        self._offset += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.rest = self.rest[-_LONGEST_LINE_BYTES:]
        return [self.show(line) for line in lines]

    def show(self, line: bytes) -> str:
        parts = [part for part in line.split(b"\r") if part.strip()] or [b""]
        return f"{self._prefix}{parts[-1].decode(errors='replace')}"
