"""What controllers write beside the ledger, read once for each time that it is written, however many ask."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from minder.act.controller.reporting.status import read_status

__all__ = ["StatusFiles", "file_version"]

_MOST = 64


class StatusFiles:
    """Safe for several threads. What it returns is shared: not to be changed."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[Hashable, dict[str, Any] | None]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, path: Path) -> dict[str, Any] | None:
        """As read_status: None where there is no such file, or nothing that can be read in it."""
        with self._lock:
            version = file_version(path)
            kept = self._kept.pop(path, None)
            if kept is None or kept[0] != version:
                kept = (version, None if version is None else read_status(path))
            self._kept[path] = kept
            if len(self._kept) > _MOST:
                self._kept.popitem(last=False)
            return kept[1]


def file_version(path: Path) -> Hashable:
    """Another value whenever the file is another one: it is replaced, never written into. None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
