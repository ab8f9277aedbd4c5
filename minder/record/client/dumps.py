"""A folder of dumps on its way to the service: files under the names that say whose they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError
from minder.record.api.dumps import CAPTURE_NAME, DUMP_NAME
from minder.record.client.calls import Calls

__all__ = ["send_dumps"]

_CAPTURE, _DUMP = re.compile(CAPTURE_NAME), re.compile(DUMP_NAME)


def send_dumps(calls: Calls, path: str, folder: Path) -> Any:
    """The JSON that the service answers. Raises BadInputError for a folder without files, WireError."""
    if not folder.is_dir():
        raise BadInputError(f"{folder} is no folder: give one with dumps")
    try:
        files = [("dump", (name, file.read_bytes())) for name, file in _dumps(folder)]  # thousands: more than may be open at once
    except OSError as error:
        raise BadInputError(f"{error.filename}: {error.strerror}") from error
    if not files:
        raise BadInputError(f"{folder} holds no dumps: a dump's file name says whose it is")
    return calls.post(path, files=files)


def _dumps(folder: Path) -> Iterator[tuple[str, Path]]:
    """(name, file) of the folder and of the captures in it; hidden files and those with odd names stay here."""
    for entry in sorted(folder.iterdir()):
        inside = sorted(entry.iterdir()) if entry.is_dir() and _CAPTURE.fullmatch(entry.name) else [entry]
        for file in inside:
            name = file.relative_to(folder).as_posix()
            if file.is_file() and _DUMP.fullmatch(name):
                yield name, file
