"""Code by content: each file once under its hash, each version as a list of files. A folder that is its owner's alone.

One lies beside the ledger, and one with each launcher that takes updates. What is read out of it is hashed again: a file that was changed
since is not used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

from minder.model.errors import BadInputError, WireError
from minder.model.private import make_private, open_private
from minder.wire.code_tree import CodeFile, CodeTree, read_tree, tree_of

__all__ = ["CHUNK_BYTES", "CodeStore"]

CHUNK_BYTES = 256 << 10
STORE_BYTES = 2 << 30  # of a whole store
_MODE, _EXECUTABLE = 0o600, 0o700


class CodeStore:
    """`add_folder` or `receive` and `keep` to fill it; `tree`, `read` and `lay_out` to use it. Every method may raise OSError."""

    def __init__(self, folder: Path, most_bytes: int = STORE_BYTES) -> None:
        self.folder, self._most_bytes = folder, most_bytes
        self._objects, self._trees, self._parts = folder / "files", folder / "versions", folder / "parts"

    def add_folder(self, source: Path) -> CodeTree:
        """A folder's files, as they are now. Raises BadInputError as read_tree, and for a file that changes meanwhile."""
        tree = read_tree(source)
        for item in tree.files:
            if not self._has(item):
                try:
                    self._take(source / item.path, item)
                except WireError as error:
                    raise BadInputError(f"--code {source}: {error}: it was changed meanwhile, so give the command again") from error
        self.keep(tree)
        return tree

    def missing(self, tree: CodeTree) -> list[CodeFile]:
        """Files that are not here yet, each content once."""
        return list({item.sha256: item for item in tree.files if not self._has(item)}.values())

    def receive(self, item: CodeFile, offset: int, data: bytes) -> int:
        """One piece of a file: the first, or the one after those that came. Returns how many bytes are here now. With the last one the hash
        is checked. Raises WireError for a piece that does not follow, and for a content with another hash."""
        if self._has(item):
            return item.size_bytes
        if not offset and self._size_bytes() + item.size_bytes > self._most_bytes:
            raise WireError(
                f"{item.path}: the store of code is full ({self._most_bytes >> 20} MiB): take old versions out of {self.folder}"
            )
        part = make_private(self._parts) / item.sha256
        here = part.stat().st_size if offset and part.exists() else 0
        if offset != here or offset + len(data) > item.size_bytes or (not data and item.size_bytes):
            raise WireError(f"{item.path}: a piece of {len(data)} bytes at {offset} does not follow the {here} of {item.size_bytes} so far")
        with open_private(part, "ab" if offset else "wb") as stream:
            stream.write(data)
        if offset + len(data) < item.size_bytes:
            return offset + len(data)
        try:
            self._take(part, item)
        finally:
            part.unlink(missing_ok=True)
        return item.size_bytes

    def keep(self, tree: CodeTree) -> None:
        """Note that all files of this version are here, and make room for it. Raises WireError while one is missing."""
        if missing := self.missing(tree):
            raise WireError(f"{missing[0].path} of the code is not here yet")
        path = make_private(self._trees) / f"{tree.digest}.json"
        _write(path, json.dumps(tree.rows()).encode(), _MODE)

    def tree(self, digest: str) -> CodeTree:
        """A version that was kept. Raises WireError where it is not here."""
        try:
            found = tree_of(json.loads((self._trees / f"{digest}.json").read_bytes()))
        except (OSError, ValueError) as error:
            raise WireError(f"the code {digest[:12]} is not in {self.folder}") from error
        if found.digest != digest or self.missing(found):
            raise WireError(f"the code {digest[:12]} in {self.folder} is not whole: give the update again")
        return found

    def read(self, item: CodeFile, offset: int, most_bytes: int = CHUNK_BYTES) -> bytes:
        with (self._objects / item.sha256).open("rb") as stream:
            stream.seek(offset)
            return stream.read(most_bytes)

    def lay_out(self, tree: CodeTree, target: Path) -> None:
        """The version as files in a folder: whole, or not there. A folder that has it already stays as it is. Raises WireError for a file
        whose content is no longer what its hash says."""
        if target.is_dir() and not target.is_symlink() and all(_is_intact(target / item.path, item) for item in tree.files):
            return
        draft = make_private(target.parent) / f".{target.name[:16]}.{secrets.token_hex(4)}"
        try:
            for item in tree.files:
                path = draft / item.path
                make_private(path.parent)
                _copy(self._objects / item.sha256, path, item, _EXECUTABLE if item.executable else _MODE)
            if target.exists() or target.is_symlink():
                target.rename(target.with_name(f".old-{secrets.token_hex(4)}"))
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            for old in target.parent.glob(".old-*"):
                shutil.rmtree(old, ignore_errors=True)

    def prune(self, needed: Collection[str]) -> list[str]:
        """Leave the oldest versions out, of those that are not needed, until the store is within its size. Returns their hashes."""
        gone: list[str] = []
        known = sorted(self._trees.glob("*.json"), key=lambda path: path.stat().st_mtime) if self._trees.is_dir() else []
        left = [path for path in known if path.stem not in needed]
        while left and self._size_bytes() > self._most_bytes:
            path = left.pop(0)
            path.unlink(missing_ok=True)
            gone.append(path.stem)
            self._drop_unused()
        return gone

    def _drop_unused(self) -> None:
        used = {row["sha256"] for path in self._trees.glob("*.json") for row in json.loads(path.read_bytes())}
        for path in self._objects.iterdir():
            if path.name not in used:
                path.unlink(missing_ok=True)

    def _size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._objects.iterdir()) if self._objects.is_dir() else 0

    def _has(self, item: CodeFile) -> bool:
        try:
            return (self._objects / item.sha256).stat().st_size == item.size_bytes
        except OSError:
            return False

    def _take(self, source: Path, item: CodeFile) -> None:
        _copy(source, make_private(self._objects) / item.sha256, item, _MODE)


def _copy(source: Path, path: Path, item: CodeFile, mode: int) -> None:
    """Whole or not at all. Raises WireError where it is not what its hash says; a link is not followed."""
    handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    with open(handle, "rb") as stream:
        content = stream.read(item.size_bytes + 1)
    if hashlib.sha256(content).hexdigest() != item.sha256:
        raise WireError(f"{item.path} has another content than its SHA-256 says")
    _write(path, content, mode)


def _write(path: Path, content: bytes, mode: int) -> None:
    draft = path.with_name(f".{secrets.token_hex(8)}.new")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(content)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def _is_intact(path: Path, item: CodeFile) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except OSError:
        return False
    with open(handle, "rb") as stream:
        executable = bool(os.fstat(handle).st_mode & 0o100)
        return executable == item.executable and hashlib.file_digest(stream, "sha256").hexdigest() == item.sha256
