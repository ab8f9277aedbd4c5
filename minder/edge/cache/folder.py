"""The folder of a cache: which records lie in it, and how much they take. What lies there is the truth: a cache that starts adopts it."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from minder.edge.cache.record import (
    DamagedHeadError,
    Record,
    RecordName,
    body_path,
    draft_path,
    head_path,
    parse_head,
    write_head,
    wrong_chunk,
)  # fmt: skip
from minder.model.errors import CheckpointError
from minder.model.private import make_private

__all__ = ["RecordFolder", "complete_steps", "foreign_files", "read_record", "sync_path"]

_OWN = re.compile(
    r"step-\d{9,}-generation-\d{5,}-rank-\d{5,}\.(body|draft|head|head\.new)|members\.json|owner\.json|port|socket|lock"
    r"|(members|owner|port)\.\d+\.tmp"
)
_DRAFT_LIVES_S = 600.0  # a body that no head followed: its writer died


class RecordFolder:
    """Records of one job in one folder, in memory (tmpfs) or on a disk. Not thread safe. Raises OSError, as the file system does."""

    def __init__(self, path: Path) -> None:
        self.path = make_private(path)
        self.records: dict[RecordName, Record] = {}
        self.unreadable: dict[RecordName, str] = {}  # records that lie here, and why they are none
        self.look()

    def look(self) -> None:
        """Read what lies there. A head that is damaged, or has no body of its length, is no record; one without a body is on its way, or
        goes just now."""
        found: dict[RecordName, Record] = {}
        self.unreadable = {}
        for path in self.path.glob("step-*.head"):
            name = RecordName.parse(path.stem)
            if name is None:
                continue
            try:
                found[name] = self.records.get(name) or read_record(self.path, name)
            except DamagedHeadError as error:
                self.unreadable[name] = str(error)
            except CheckpointError:
                pass
        self.records = found

    def read(self, name: RecordName) -> Record:
        """Take note of a record that was just written here. Raises CheckpointError if it is not whole."""
        record = self.records[name] = read_record(self.path, name)
        return record

    def add(self, record: Record, *, sync: bool = False) -> None:
        """Make a record of a whole draft. sync: flush both files to the disk first."""
        draft = draft_path(self.path, record.name)
        if sync:
            sync_path(draft)
        draft.replace(body_path(self.path, record.name))
        write_head(self.path, record, sync=sync)
        self.records[record.name] = record

    def is_damaged(self, name: RecordName) -> bool:
        """Whether it lies here, and its body is not what was written: all of it is read."""
        record = self.records.get(name)
        if record is None or not record.body_bytes:
            return False
        with body_path(self.path, name).open("rb") as file:
            return wrong_chunk(memoryview(mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE)), record) is not None

    def equal(self, record: Record, *, whole: bool = False) -> RecordName | None:
        """Another record here with an equal body. whole: all of it is read, and one that is damaged is not taken."""
        if record.key is None:
            return None
        names = (name for name, other in self.records.items() if name != record.name and other.key == record.key)
        return next((name for name in names if not whole or not self.is_damaged(name)), None)

    @contextlib.contextmanager
    def mending(self, name: RecordName) -> Iterator[None]:
        """Meanwhile the body of a record that lies here is its draft too: what is written there mends each record that has this body. None
        of them goes for it: a machine may be asking for one just now, which lies nowhere else."""
        draft = draft_path(self.path, name)
        draft.unlink(missing_ok=True)
        os.link(body_path(self.path, name), draft)
        try:
            yield
        finally:
            draft.unlink(missing_ok=True)

    def link(self, record: Record, body_of: RecordName) -> None:
        """Make a record whose body is another's."""
        draft = draft_path(self.path, record.name)
        draft.unlink(missing_ok=True)
        os.link(body_path(self.path, body_of), draft)
        self.add(record)

    def drop(self, names: Iterable[RecordName]) -> None:
        """The head goes first, so that half a removed record does not count. A reader that has it open keeps its bytes."""
        for name in list(names):
            head_path(self.path, name).unlink(missing_ok=True)
            body_path(self.path, name).unlink(missing_ok=True)
            self.records.pop(name, None)

    def drop_drafts(self, older: Callable[[RecordName], bool], now_s: float | None = None) -> None:
        """Bodies without a head: those whose name is `older`, and those that have not been written to for ten minutes."""
        now_s = time.time() if now_s is None else now_s
        for path in self.path.glob("step-*.*"):
            name = RecordName.parse(path.stem)
            if name is None or name in self.records or path.suffix not in (".draft", ".body"):
                continue
            with contextlib.suppress(OSError):
                if older(name) or now_s - path.stat().st_mtime > _DRAFT_LIVES_S:
                    path.unlink()

    def used_bytes(self) -> int:
        """What all files here take; a body that two records share counts once."""
        sizes: dict[int, int] = {}
        for path in self.path.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                sizes[status.st_ino] = status.st_blocks * 512
        return sum(sizes.values())

    def remove(self) -> None:
        """All that is a cache's, and the folder, if nothing else lies there."""
        self.records.clear()
        with contextlib.suppress(OSError):
            foreign = set(foreign_files(self.path))
            for path in self.path.iterdir():
                if path.name not in foreign:
                    path.unlink(missing_ok=True)
            self.path.rmdir()


def read_record(folder: Path, name: RecordName) -> Record:
    """Raises CheckpointError if it is not there, or not whole. The body itself is not read."""
    try:
        record = parse_head(head_path(folder, name).read_bytes())
        size_bytes = body_path(folder, name).stat().st_size
    except OSError as error:
        raise CheckpointError(f"no record {name} in {folder}: {error.strerror}") from error
    if record.name != name or size_bytes != record.body_bytes:
        raise CheckpointError(f"record {name} in {folder}: its head and its body do not go together")
    return record


def foreign_files(folder: Path) -> list[str]:
    """Names in a folder that no cache writes. Raises OSError."""
    return sorted(path.name for path in folder.iterdir() if _OWN.fullmatch(path.name) is None)


def complete_steps(folder: Path) -> list[Record]:
    """One record of each step of which the folder has a head of every rank, newest step first: of a folder that all caches flush to. Only
    that one head is read. Raises OSError where the folder cannot be listed."""
    ranks: dict[tuple[int, int], set[int]] = {}
    for path in folder.glob("step-*-rank-*.head"):
        name = RecordName.parse(path.stem)
        if name is not None:
            ranks.setdefault((name.step, name.generation), set()).add(name.rank)
    found = []
    for (step, generation), there in sorted(ranks.items(), reverse=True):
        with contextlib.suppress(CheckpointError):
            record = read_record(folder, RecordName(step, generation, min(there)))
            if there == set(range(record.world_size)):
                found.append(record)
    return found


def sync_path(path: Path) -> None:
    """What was written to this file, or renamed in this folder, is on the disk when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
