"""The files of a job's code as a list with hashes: what an update names, what travels to launchers, what lies in a store."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError, WireError

__all__ = ["MOST_BYTES", "MOST_FILES", "CodeFile", "CodeTree", "read_tree", "tree_of"]

MOST_FILES, MOST_BYTES = 5000, 256 << 20  # of one version
_LONGEST_PATH = 300
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LEFT_OUT = frozenset(
    {".git", ".hg", ".svn", "__pycache__", ".venv", "venv", "node_modules", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)


@dataclass(frozen=True, slots=True)
class CodeFile:
    """One regular file. path: relative, with slashes; sha256 in hex; executable: its owner may run it."""

    path: str
    size_bytes: int
    sha256: str
    executable: bool = False


@dataclass(frozen=True, slots=True)
class CodeTree:
    """All files of one version of the code, by path."""

    files: tuple[CodeFile, ...]

    @property
    def digest(self) -> str:
        """SHA-256 in hex of names, contents and executable bits: the same files have the same one."""
        rows = [[item.path, item.size_bytes, item.sha256, item.executable] for item in self.files]
        return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.files)

    @property
    def paths(self) -> frozenset[str]:
        return frozenset(item.path for item in self.files)

    def rows(self) -> list[dict[str, Any]]:
        """As JSON has them."""
        return [
            {"path": item.path, "size_bytes": item.size_bytes, "sha256": item.sha256, "executable": item.executable} for item in self.files
        ]


def tree_of(rows: Any) -> CodeTree:
    """A list that came over a network or lay in a file, checked: no path leads out of its folder. Raises WireError that names the file."""
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise WireError("files is no list of objects: give path, size_bytes, sha256 and executable of each")
    files = tuple(sorted((_file_of(row) for row in rows), key=lambda item: item.path))
    if why := _fault(files):
        raise WireError(why)
    return CodeTree(files)


def read_tree(folder: Path) -> CodeTree:
    """The files below a folder, hashed; version control, caches and environments are left out. Raises BadInputError for a symbolic link,
    another special file, a folder without files, and one that is too large."""
    if not folder.is_dir():
        raise BadInputError(f"--code {folder}: no such folder; give the folder that holds the job's script")
    found: list[CodeFile] = []
    size_bytes = 0
    try:
        for path in _walk(folder):
            size_bytes += path.stat().st_size
            if len(found) >= MOST_FILES or size_bytes > MOST_BYTES:
                most = f"at most {MOST_FILES} files and {MOST_BYTES >> 20} MiB"
                raise BadInputError(f"--code {folder} holds more than an update may ({most}): keep data and results outside of it")
            found.append(_read_file(folder, path))
    except OSError as error:
        raise BadInputError(f"--code {folder}: {error.filename or ''}: {error.strerror}") from error
    files = tuple(sorted(found, key=lambda item: item.path))
    if why := _fault(files):
        raise BadInputError(f"--code {folder}: {why}")
    return CodeTree(files)


def _walk(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.name in _LEFT_OUT or entry.name.endswith(".pyc"):
            continue
        if entry.is_symlink():
            raise BadInputError(
                f"--code: {entry.path} is a symbolic link: an update holds regular files only, so put the file itself there"
            )
        if entry.is_dir():
            yield from _walk(Path(entry.path))
        elif entry.is_file():
            yield Path(entry.path)
        else:
            raise BadInputError(f"--code: {entry.path} is neither a file nor a folder: take it away")


def _read_file(folder: Path, path: Path) -> CodeFile:
    with path.open("rb") as stream:
        digest, found = hashlib.file_digest(stream, "sha256").hexdigest(), os.fstat(stream.fileno())
    return CodeFile(path.relative_to(folder).as_posix(), found.st_size, digest, bool(found.st_mode & stat.S_IXUSR))


def _file_of(row: Mapping[str, Any]) -> CodeFile:
    path, size_bytes, sha256 = row.get("path"), row.get("size_bytes"), row.get("sha256")
    if not isinstance(path, str) or not isinstance(sha256, str) or _SHA256.fullmatch(sha256) is None:
        raise WireError(f"a file of the code has no path or no SHA-256: {str(path)[:80]}")
    if not isinstance(size_bytes, int) or isinstance(size_bytes, bool) or not 0 <= size_bytes <= MOST_BYTES:
        raise WireError(f"{path[:80]}: size_bytes is {size_bytes!r}, at most {MOST_BYTES}")
    return CodeFile(path, size_bytes, sha256, row.get("executable") is True)


def _fault(files: tuple[CodeFile, ...]) -> str:
    """Why these are no version of a job's code; "" if they are."""
    if not files or len(files) > MOST_FILES or sum(item.size_bytes for item in files) > MOST_BYTES:
        return f"{len(files)} files: an update holds 1 to {MOST_FILES}, of {MOST_BYTES >> 20} MiB together"
    for item in files:
        if not _is_safe(item.path):
            return f"{item.path[:80]!r} is no path below the code's folder: no '..', no absolute path, {_LONGEST_PATH} characters at most"
    paths = [item.path for item in files]
    taken = set(_folders(paths))
    for path in paths:
        if path in taken:
            return f"{path} stands twice, or is a file and a folder"
        taken.add(path)
    return ""


def _folders(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        parts = path.split("/")
        yield from ("/".join(parts[:length]) for length in range(1, len(parts)))


def _is_safe(path: str) -> bool:
    parts = path.split("/")
    plain = all(part not in ("", ".", "..") for part in parts) and path.isprintable() and "\\" not in path
    return plain and len(path.encode("utf-8", "replace")) <= _LONGEST_PATH
