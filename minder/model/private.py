"""Files and folders that minder makes are its owner's alone, whatever umask it was started with: 0600 and 0700.

One folder may be shared on purpose: the run directory, where a machine's agent meets launchers and workers of other users
(/run/minder with mode 1777). What is made in a shared folder can be found by those who share it. What exists already keeps its mode.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

__all__ = [
    "make_meeting",
    "make_private",
    "meeting_mode",
    "open_meeting",
    "open_private",
    "private_files",
    "replace_private",
    "write_private",
]

_FOLDER, _FILE = 0o700, 0o600
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextlib.contextmanager
def private_files() -> Iterator[None]:
    """All that this process makes meanwhile is its owner's alone, by whatever library. Not for one that starts people's own programs:
    their files follow their own umask."""
    before = os.umask(0o777 ^ _FOLDER)
    try:
        yield
    finally:
        os.umask(before)


def make_private(folder: Path) -> Path:
    """Make it, and parents that are missing, with mode 0700. Raises OSError."""
    missing = []
    for each in (folder, *folder.parents):
        if each.exists():
            break
        missing.append(each)
    for each in reversed(missing):
        each.mkdir(mode=_FOLDER, exist_ok=True)
    if not folder.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(folder))
    return folder


def make_meeting(run_dir: Path, *parts: str) -> Path:
    """A folder in the run directory: as open as that is where others may write into it, else 0700. Raises OSError."""
    folder = make_private(run_dir)
    shared = stat.S_IMODE(folder.stat().st_mode)
    for part in parts:
        folder = folder / part
        if shared & _OTHERS_WRITE and not folder.exists():
            folder.mkdir(exist_ok=True)
            folder.chmod(shared)  # a umask would keep the others out
        make_private(folder)
    return folder


def meeting_mode(folder: Path) -> int:
    """For a new file in a folder of the run directory: 0600, or readable for those who share the folder."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    return _FILE | (mode & 0o044 if mode & _OTHERS_WRITE else 0)


def open_private(path: Path, mode: str = "w", **options: Any) -> IO[Any]:
    """`open`, with mode 0600 for a file that is new. Raises OSError."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, _FILE), **options)


def open_meeting(path: Path, mode: str = "w", **options: Any) -> IO[Any]:
    """`open` of a file in a folder of the run directory. Raises OSError."""
    return open(path, mode, opener=lambda name, flags: os.open(name, flags, meeting_mode(path.parent)), **options)


def write_private(path: Path, text: str) -> None:
    """`Path.write_text`, with mode 0600 for a file that is new. Raises OSError."""
    with open_private(path, encoding="utf-8") as file:
        file.write(text)


def replace_private(path: Path, text: str) -> None:
    """As `write_private`, but whole or not at all for those who read it meanwhile. Raises OSError."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    write_private(temporary, text)
    temporary.replace(path)
