"""What a rank of torchrun left in its error file: `@record` of torch.distributed.elastic writes its exception there before it ends."""

from __future__ import annotations

import json
import os
import re
import stat
from typing import Any

__all__ = ["read_error_file"]

_MOST_BYTES = 1 << 20
_NAMED = re.compile(r"(?:[A-Za-z_]\w*\.)*(?P<type>[A-Za-z_]\w*)(?:: (?P<text>.*))?\Z", re.DOTALL)


def read_error_file(path: str, owner: int) -> tuple[str, str] | None:
    """(type, message) of the exception; None where there is none to read. owner: the rank's uid, of whom alone a file is read: the path
    comes out of its environment."""
    content = _read(path, owner)
    try:
        message: Any = json.loads(content)["message"] if content else None
        message = message["message"] if isinstance(message, dict) else message
    except (ValueError, KeyError, TypeError):
        return None
    found = _NAMED.match(message.strip()) if isinstance(message, str) else None
    return None if found is None else (found["type"], (found["text"] or "").strip())


def _read(path: str, owner: int) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return b""
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner or status.st_size > _MOST_BYTES:
            return b""
        return os.read(handle, _MOST_BYTES)
    except OSError:
        return b""
    finally:
        os.close(handle)
