"""The folder of a cache: which records lie in it, and how much they take. What lies there is the truth: a cache that starts adopts it."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

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

__all__ = ["LOCK", "RecordFolder", "complete_steps", "discard", "foreign_files", "read_record", "sync_path"]

_OWN = re.compile(
    r"step-\d{9,}-generation-\d{5,}-rank-\d{5,}\.(body|draft|head|head\.new)|members\.json|owner\.json|port|socket|lock"
    r"|(members|owner|port)\.\d+\.tmp"
)
_UNFINISHED = (".draft", ".body", ".new")
LOCK = "lock"  # of the cache whose folder it is


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
        if sync:
            with contextlib.suppress(OSError):  # not every file system can
                sync_path(self.path)  # the names too: until then a power failure takes them
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
        for file in self.take_away(names):
            file.close()

    def take_away(self, names: Iterable[RecordName]) -> list[IO[bytes]]:
        """As `drop`, but their memory is taken until what is returned is closed: a gigabyte takes the kernel a quarter of a second."""
        open_bodies: list[IO[bytes]] = []
        for name in list(names):
            head_path(self.path, name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                open_bodies.append(body_path(self.path, name).open("rb"))
            body_path(self.path, name).unlink(missing_ok=True)
            self.records.pop(name, None)
        return open_bodies

    def drop_unfinished(self, is_over: Callable[[RecordName], bool]) -> bool:
        """What is there of records that never became any, their writers' names being `is_over`: a writer that was killed leaves it behind.
        Whether there was any."""
        found = False
        for path in self.path.glob("step-*.*"):
            name = RecordName.parse(path.name.partition(".")[0])
            if name is not None and name not in self.records and path.suffix in _UNFINISHED and is_over(name):
                path.unlink(missing_ok=True)
                found = True
        return found

    def used_bytes(self) -> int:
        """What all files here take; a body that two records share counts once."""
        sizes: dict[int, int] = {}
        for path in self.path.iterdir():
            with contextlib.suppress(OSError):
                status = path.stat()
                sizes[status.st_ino] = status.st_blocks * 512
        return sum(sizes.values())

    def remove(self) -> None:
        """All that is a cache's, and the folder, if nothing else lies there. The lock stays: it is its holder's, who goes last."""
        self.records.clear()
        with contextlib.suppress(OSError):
            stays = {*foreign_files(self.path), LOCK}
            for path in self.path.iterdir():
                if path.name not in stays:
                    path.unlink(missing_ok=True)
            self.path.rmdir()


def discard(folder: Path, name: RecordName) -> None:
    """Remove what its writer could not make a record of: the room is the next one's. What has a head is a record, and stays."""
    with contextlib.suppress(OSError):
        draft_path(folder, name).unlink(missing_ok=True)
        if not head_path(folder, name).exists():
            for path in (body_path(folder, name), head_path(folder, name).with_suffix(".head.new")):
                path.unlink(missing_ok=True)


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
    """One record of each step of which the folder has head and body of every rank, newest step first: of a folder that all caches flush to.
    Only one head is read. Raises OSError where the folder cannot be listed."""
    ranks: dict[tuple[int, int], set[int]] = {}
    listed = {path.name for path in folder.glob("step-*-rank-*")}
    for each in listed:
        stem, _, kind = each.partition(".")
        name = RecordName.parse(stem)
        if name is not None and kind == "head" and f"{stem}.body" in listed:
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
