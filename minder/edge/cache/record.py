"""A record: one rank's state after one step, as two files of one name. This is the only format, in memory, on disk and on the way.

    step-000000012-generation-00003-rank-00005.body    the tensors' bytes, one after the other
    step-000000012-generation-00003-rank-00005.head    what the body is, a CRC-32 for each chunk of it, and the plain values

The head is written last and whole: a record without a head does not exist. The checksums find what hardware and programs do to bytes
(a flipped bit in memory, a page that was never written, half a transfer); they are no protection against people, which is what file
modes and tokens are for. Bodies are written once: two records with equal bodies share one file (a hard link).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minder.model.batch_ranges import BatchRangesError, format_ranges, parse_ranges
from minder.model.errors import CheckpointError
from minder.model.private import open_private

__all__ = [
    "CHUNK_BYTES", "DamagedHeadError", "Record", "RecordName", "body_path", "checksums", "draft_path", "head_path", "parse_head",
    "write_head", "wrong_chunk",
]  # fmt: skip

CHUNK_BYTES = 256 * 1024
_NAME = re.compile(r"step-(\d{9,})-generation-(\d{5,})-rank-(\d{5,})")
_FORMAT = 1
_LEAST_SHARE_BYTES = 32 << 20
_FEWEST_CHUNKS = 8  # a key of fewer checksums is no proof that two bodies are equal


class DamagedHeadError(CheckpointError):
    """A head that is not what was written, or of a format that this version does not read."""


@dataclass(frozen=True, slots=True, order=True)
class RecordName:
    """Newer is greater: the step comes before the generation.

    >>> str(RecordName(12, 3, 5))
    'step-000000012-generation-00003-rank-00005'
    """

    step: int
    generation: int
    rank: int

    def __str__(self) -> str:
        return f"step-{self.step:09d}-generation-{self.generation:05d}-rank-{self.rank:05d}"

    @classmethod
    def parse(cls, text: str) -> RecordName | None:
        """None for a text that names no record."""
        match = _NAME.fullmatch(text)
        found = None if match is None else cls(int(match[1]), int(match[2]), int(match[3]))
        return found if str(found) == text else None


@dataclass(frozen=True, slots=True)
class Record:
    """A head. layout: a digest of which tensors the body holds; chunks: CRC-32 of each CHUNK_BYTES of it; values: plain values, packed.
    update: of the job's code that saved it, 0 where none is known; skipped: batches that its run leaves out. keeper: the rank whose record
    of this step has the body, which is equal to this rank's own: the body here is empty then; None where it has its own. digest: equal in
    both; "" where the body stands for no other rank."""

    name: RecordName
    world_size: int
    body_bytes: int
    layout: str
    chunks: tuple[int, ...]
    values: bytes
    update: int = 0
    skipped: str = ""
    keeper: int | None = None
    digest: str = ""

    @property
    def key(self) -> str | None:
        """Equal for equal bodies. None where it would prove nothing: a small body is simply kept twice."""
        if len(self.chunks) < _FEWEST_CHUNKS:
            return None
        return hashlib.sha256(json.dumps([self.layout, self.body_bytes, self.chunks]).encode()).hexdigest()

    def pack(self) -> bytes:
        """The head file's bytes: its own checksum and the length of its JSON in the first line, the JSON, the values."""
        content: dict[str, Any] = {
            "format": _FORMAT, "name": str(self.name), "world_size": self.world_size, "body_bytes": self.body_bytes,
            "layout": self.layout, "chunks": self.chunks, **({"update": self.update} if self.update else {}),
            **({"skipped": self.skipped} if self.skipped else {}), **({} if self.keeper is None else {"keeper": self.keeper}),
            **({"digest": self.digest} if self.digest else {}),
        }  # fmt: skip
        text = json.dumps(content, separators=(",", ":")).encode()
        return b"%08x %d\n" % (zlib.crc32(text + self.values), len(text)) + text + self.values


def parse_head(data: bytes) -> Record:
    """Raises DamagedHeadError for bytes that are no whole head."""
    try:
        first, _, rest = data.partition(b"\n")
        checksum, length = first.split(b" ")
        if zlib.crc32(rest) != int(checksum, 16):
            raise ValueError("its checksum differs")
        content, values = json.loads(rest[: int(length)]), rest[int(length) :]
        name = RecordName.parse(content["name"])
        if name is None:
            raise ValueError("it names no record")
        if content["format"] != _FORMAT:
            raise DamagedHeadError(f"a checkpoint record is of format {content['format']}: this version of minder reads {_FORMAT}")
        made_by = int(content.get("update", 0)), format_ranges(parse_ranges(content.get("skipped", "")))
        chunks, twin = tuple(content["chunks"]), (content.get("keeper"), str(content.get("digest", "")))
        record = Record(name, content["world_size"], content["body_bytes"], content["layout"], chunks, values, *made_by, *twin)
        if len(record.chunks) != -(-record.body_bytes // CHUNK_BYTES):
            raise ValueError("its fields contradict each other")
    except (ValueError, KeyError, TypeError, AttributeError, BatchRangesError) as error:
        raise DamagedHeadError(f"a checkpoint record's head is damaged: {error}") from error
    return record


def body_path(folder: Path, name: RecordName) -> Path:
    return folder / f"{name}.body"


def draft_path(folder: Path, name: RecordName) -> Path:
    """A body that is being written."""
    return folder / f"{name}.draft"


def head_path(folder: Path, name: RecordName) -> Path:
    return folder / f"{name}.head"


def write_head(folder: Path, record: Record, *, sync: bool = False) -> None:
    """Make the record exist; its body must lie there. sync: flush it to the disk. Raises OSError."""
    path = head_path(folder, record.name)
    unfinished = path.with_suffix(".head.new")
    with open_private(unfinished, "wb") as file:
        file.write(record.pack())
        if sync:
            file.flush()
            os.fsync(file.fileno())
    unfinished.replace(path)


def checksums(body: memoryview, threads: int = 1) -> tuple[int, ...]:
    """CRC-32 of every chunk; the last one may be shorter. threads: how many share a large body.

    >>> checksums(memoryview(b"abc"))
    (891568578,)
    """
    share = -(-len(body) // (max(1, threads) * CHUNK_BYTES)) * CHUNK_BYTES
    if threads <= 1 or share < _LEAST_SHARE_BYTES:
        return _checksums(body)
    with ThreadPoolExecutor(threads) as pool:
        parts = pool.map(_checksums, [body[begin : begin + share] for begin in range(0, len(body), share)])
        return tuple(checksum for part in parts for checksum in part)


def _checksums(body: memoryview) -> tuple[int, ...]:
    return tuple(zlib.crc32(body[begin : begin + CHUNK_BYTES]) for begin in range(0, len(body), CHUNK_BYTES))


def wrong_chunk(body: memoryview, record: Record, threads: int = 1) -> int | None:
    """The first chunk that is not what was written; None if all are. A body of another length is wrong from its end on."""
    found = checksums(body, threads)
    wrong = (index for index, wanted in enumerate(record.chunks) if index >= len(found) or found[index] != wanted)
    return next(wrong, None if len(body) == record.body_bytes else len(record.chunks))
