"""The end of a file: a rank's log may be larger than what is worth reading, and its newest dump stands last."""

from __future__ import annotations

import codecs
import errno
import gzip
import os
import zlib
from pathlib import Path
from typing import BinaryIO

__all__ = ["read_end"]

_GZIP = b"\x1f\x8b"
_BLOCK = 1 << 20
_MOST_UNPACKED = 1 << 30  # a file that unpacks to more is no dump
_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def read_end(path: Path, most_bytes: int) -> bytes:
    """All of a file, or, where it is larger, its last bytes from the beginning of a line on; of a gzip what it unpacks to, also where its
    end is missing. Raises OSError."""
    with open(path, "rb", buffering=0) as file:
        if file.read(len(_GZIP)) == _GZIP:
            return _unpacked_end(file, most_bytes)
        file.seek(0)
        size = os.fstat(file.fileno()).st_size
        if size <= most_bytes:
            return file.read()
        begin = file.read(len(_MARKS[0]))
        file.seek(size - most_bytes + (size - most_bytes) % 2)  # an even place: letters of two bytes stay whole
        end = file.read()
    mark = begin if begin in _MARKS else b""
    return mark + end[end.find(b"\n") + 1 :] if not mark else mark + end


def _unpacked_end(file: BinaryIO, most_bytes: int) -> bytes:
    """No more than twice `most_bytes` is in memory at once."""
    file.seek(0)
    kept, begin, total = b"", b"", 0
    with gzip.open(file) as packed:
        while True:
            try:
                block = packed.read(_BLOCK)
            except EOFError:  # cut off: what was written before it is a dump all the same
                break
            except (gzip.BadGzipFile, zlib.error) as error:
                raise OSError(errno.EILSEQ, f"its gzip is damaged ({error})") from error
            if not block:
                break
            begin, total = begin or block[: len(_MARKS[0])], total + len(block)
            if total > _MOST_UNPACKED:
                raise OSError(errno.EFBIG, f"it unpacks to more than {_MOST_UNPACKED >> 20} MiB")
            kept += block
            if len(kept) > 2 * most_bytes:
                kept = kept[len(kept) - most_bytes - (total - most_bytes) % 2 :]
    if total <= most_bytes:
        return kept
    end = kept[len(kept) - most_bytes + (total - most_bytes) % 2 :]
    return begin + end if begin in _MARKS else end[end.find(b"\n") + 1 :]
