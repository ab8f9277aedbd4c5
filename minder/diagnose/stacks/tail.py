"""The end of a file: a rank's log may be larger than what is worth reading, and its newest dump stands last."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

__all__ = ["read_end"]

_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_end(path: Path, most_bytes: int) -> bytes:
    """All of a file, or, where it is larger, its last bytes from the beginning of a line on. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= most_bytes:
            return file.read()
        begin = file.read(len(_MARKS[0]))
        file.seek(size - most_bytes + (size - most_bytes) % 2)  # an even place: letters of two bytes stay whole
        end = file.read()
    mark = begin if begin in _MARKS else b""
    return mark + end[end.find(b"\n") + 1 :] if not mark else mark + end
