"""Fetching a record from other caches: in pieces, each chunk checked before it is written, and what came before an interruption is not
asked for again. A body may come from several at once: every one that has an equal one."""

from __future__ import annotations

import http.client
import json
import mmap
import os
import threading
import time
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minder.edge.cache.record import CHUNK_BYTES, Record, RecordName, draft_path, parse_head
from minder.model.errors import CheckpointError, NoAnswerError, WireError
from minder.wire.plain import Origin

__all__ = ["PIECE_BYTES", "RateLimit", "Source", "be_nice", "pull_body", "pull_head", "read_state"]

PIECE_BYTES = 64 * CHUNK_BYTES
_LARGEST_HEAD_BYTES = 64 * 2**20
_BLOCK_CHUNKS = 4  # read and written at once: a quarter of the calls, and still within a core's own memory
_TRIES = 3
_SILENT_S = 5.0
_STREAMS = 2  # of one source, and at least: a stream is bound by one core
_MOST_SOURCES = 4
_NICE = 10


@dataclass(frozen=True, slots=True)
class Source:
    """A cache and the record there whose body is wanted. token: what that cache lets in."""

    url: str
    name: RecordName
    token: str = field(default="", repr=False)


class RateLimit:
    """So many bytes a second for all that share it; 0: as many as there are."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0
        self._lock = threading.Lock()

    def take(self, count: int) -> None:
        """Sleep until `count` bytes may go."""
        if self._bytes_per_s <= 0:
            return
        with self._lock:
            start_s = max(self._free_s, time.monotonic())
            self._free_s = start_s + count / self._bytes_per_s
        time.sleep(max(0.0, start_s - time.monotonic()))


def be_nice() -> None:
    """The calling thread gives way to the training processes: what is done at every step. A recovery is not: all wait for it."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, max(_NICE, os.getpriority(os.PRIO_PROCESS, thread)))  # only root may go up


def read_state(url: str, token: str, wait_s: float) -> dict[str, Any]:
    """What another cache holds. Raises WireError (NoAnswerError where it is silent)."""
    data = _Peer(url, token, wait_s).get("/v1/state", _LARGEST_HEAD_BYTES)
    try:
        return dict(json.loads(data))
    except (ValueError, TypeError) as error:
        raise WireError(f"{url}/v1/state answered what is no JSON object") from error


def pull_head(source: Source) -> Record:
    """Raises WireError (NoAnswerError where the peer is silent), CheckpointError for a damaged one."""
    record = parse_head(_Peer(source.url, source.token).get(f"/v1/records/{source.name}/head", _LARGEST_HEAD_BYTES))
    if record.name != source.name:
        raise CheckpointError(f"{source.url} gave {record.name} for {source.name}")
    return record


def pull_body(sources: Sequence[Source], record: Record, folder: Path, limit: RateLimit | None = None) -> None:
    """Fill the record's draft in `folder`; chunks that an earlier try left there are kept where they are right.

    limit: of a backup, which one stream fetches at low priority. None: a recovery, in several streams, from all sources. A chunk that
    comes damaged is asked for again, three times in all. Raises WireError, CheckpointError, OSError; what came stays.
    """
    path = draft_path(folder, record.name)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        has_begun = os.fstat(handle).st_blocks > 0
        os.ftruncate(handle, record.body_bytes)
        if record.body_bytes:
            missing = _missing(handle, record) if has_begun else list(range(len(record.chunks)))
            _Pull(record, handle, limit, missing).run(sources[:_MOST_SOURCES])
    finally:
        os.close(handle)


def _missing(handle: int, record: Record) -> list[int]:
    """Chunks that are not what was written."""
    body = memoryview(mmap.mmap(handle, record.body_bytes))
    return [index for index, wanted in enumerate(record.chunks) if zlib.crc32(_chunk(body, index)) != wanted]


class _Pull:
    """One body on its way. Threads take pieces, which are runs of neighbouring chunks, until none is left."""

    def __init__(self, record: Record, handle: int, limit: RateLimit | None, missing: list[int]) -> None:
        self._record, self._handle, self._limit = record, handle, limit
        longest = PIECE_BYTES // CHUNK_BYTES
        self._pieces = _runs(missing, longest if limit is not None else max(1, min(longest, len(missing) // (4 * _MOST_SOURCES))))
        self._lock = threading.Lock()

    def run(self, sources: Sequence[Source]) -> None:
        """A source that fails is left out, and its piece goes to another."""
        if self._limit is not None:
            self._drain(sources[0])
            return
        left = list(sources)
        while self._pieces:
            streams = (left * max(1, _STREAMS // len(left)))[: max(len(left), len(self._pieces))]
            with ThreadPoolExecutor(len(streams), "minder-stream") as pool:
                outcomes = [(source, pool.submit(self._drain, source)) for source in streams]
            failed = {source: error for source, outcome in outcomes if (error := outcome.exception()) is not None}
            left = [source for source in left if source not in failed]
            if not left:
                raise next(iter(failed.values()))

    def _drain(self, source: Source) -> None:
        peer = _Peer(source.url, source.token)
        while (piece := self._take()) is not None:
            done = piece.start
            try:
                for reached in self._fetch(peer, source.name, piece):
                    done = reached
            except (OSError, WireError, CheckpointError):
                self._give_back(range(done, piece.stop))
                raise
        peer.close()

    def _take(self) -> range | None:
        with self._lock:
            return self._pieces.pop(0) if self._pieces else None

    def _give_back(self, piece: range) -> None:
        if piece:
            with self._lock:
                self._pieces.insert(0, piece)

    def _fetch(self, peer: _Peer, name: RecordName, piece: range) -> Iterable[int]:
        """Chunk by chunk; yields the first that is still missing."""
        begin, end = piece.start * CHUNK_BYTES, min(piece.stop * CHUNK_BYTES, self._record.body_bytes)
        if self._limit is not None:
            self._limit.take(end - begin)
        buffer = memoryview(bytearray(_BLOCK_CHUNKS * CHUNK_BYTES))
        damaged: list[int] = []
        with peer.body(name, begin, end - begin, self._limit is None) as answer:
            for block in _runs(piece, _BLOCK_CHUNKS):
                data = buffer[: min(block.stop * CHUNK_BYTES, end) - block.start * CHUNK_BYTES]
                peer.fill(data, answer)
                damaged += self._keep(block, data)
                if not damaged:
                    yield block.stop
        for index in damaged:
            self._ask_again(peer, name, index, buffer)
            yield index + 1
        yield piece.stop

    def _keep(self, block: range, data: memoryview) -> list[int]:
        """Write neighbouring chunks, and return those that are damaged, which are not written."""
        wanted = self._record.chunks
        damaged = [index for index in block if zlib.crc32(_chunk(data, index - block.start)) != wanted[index]]
        for right in _runs((index for index in block if index not in damaged), len(block)):
            whole = data[(right.start - block.start) * CHUNK_BYTES : (right.stop - block.start) * CHUNK_BYTES]
            if os.pwrite(self._handle, whole, right.start * CHUNK_BYTES) != len(whole):
                raise OSError(28, "no room for a checkpoint record")
        return damaged

    def _ask_again(self, peer: _Peer, name: RecordName, index: int, buffer: memoryview) -> None:
        begin = index * CHUNK_BYTES
        chunk = buffer[: min(CHUNK_BYTES, self._record.body_bytes - begin)]
        for _ in range(_TRIES - 1):
            with peer.body(name, begin, len(chunk), self._limit is None) as answer:
                peer.fill(chunk, answer)
            if not self._keep(range(index, index + 1), chunk):
                return
        raise CheckpointError(f"chunk {index} of {name} from {peer.url} is damaged")


class _Peer:
    """One kept connection to another cache."""

    def __init__(self, url: str, token: str, silent_s: float = _SILENT_S) -> None:
        self.url = url
        origin = Origin.of(url)
        self._connection = http.client.HTTPConnection(origin.host, origin.port, timeout=silent_s)
        self._headers = {"Authorization": f"Bearer {token}"}

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str, largest_bytes: int) -> bytes:
        with self._ask(path) as answer:
            data = answer.read(largest_bytes + 1)
        if len(data) > largest_bytes:
            raise WireError(f"{self.url}{path} answered more than {largest_bytes} bytes")
        return data

    def body(self, name: RecordName, begin: int, count: int, is_urgent: bool) -> http.client.HTTPResponse:
        return self._ask(f"/v1/records/{name}/body?from={begin}&bytes={count}" + ("&urgent=1" if is_urgent else ""))

    def fill(self, target: memoryview, answer: http.client.HTTPResponse) -> None:
        done = 0
        while done < len(target):
            try:
                count = answer.readinto(target[done:])
            except (OSError, http.client.HTTPException) as error:
                raise NoAnswerError(f"{self.url} stopped in the middle of a record: {error}") from error
            if not count:
                raise NoAnswerError(f"{self.url} stopped in the middle of a record")
            done += count

    def _ask(self, path: str) -> http.client.HTTPResponse:
        try:
            self._connection.request("GET", path, headers=self._headers)
            answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise NoAnswerError(f"the cache at {self.url} does not answer: {error}") from error
        if answer.status != 200:
            said = answer.read(500).decode(errors="replace")
            raise WireError(f"the cache at {self.url} answered {answer.status} to {path.partition('?')[0]}: {said}")
        return answer


def _chunk(body: memoryview, index: int) -> memoryview:
    return body[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES]


def _runs(indices: Iterable[int], longest: int) -> list[range]:
    """Neighbouring chunks together, so many at most."""
    found: list[range] = []
    for index in indices:
        if found and found[-1].stop == index and len(found[-1]) < longest:
            found[-1] = range(found[-1].start, index + 1)
        else:
            found.append(range(index, index + 1))
    return found
