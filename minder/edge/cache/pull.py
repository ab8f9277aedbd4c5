"""Fetching a record from another cache: in pieces, each chunk checked, and what came before an interruption is not asked for again."""

from __future__ import annotations

import http.client
import mmap
import os
import threading
import time
import zlib
from pathlib import Path

from minder.edge.cache.record import CHUNK_BYTES, Record, RecordName, draft_path, parse_head, wrong_chunk
from minder.model.errors import CheckpointError, NoAnswerError, WireError
from minder.wire.plain import Origin

__all__ = ["PIECE_BYTES", "RateLimit", "pull_body", "pull_head"]

PIECE_BYTES = 16 * CHUNK_BYTES
_LARGEST_HEAD_BYTES = 64 * 2**20
_TRIES = 3
_SILENT_S = 5.0


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


def pull_head(url: str, token: str, name: RecordName) -> Record:
    """Raises WireError (NoAnswerError where the peer is silent), CheckpointError for a damaged one."""
    record = parse_head(_Peer(url, token).get(f"/v1/records/{name}/head", _LARGEST_HEAD_BYTES))
    if record.name != name:
        raise CheckpointError(f"{url} gave {record.name} for {name}")
    return record


def pull_body(url: str, token: str, record: Record, folder: Path, limit: RateLimit) -> None:
    """Fill the record's draft in `folder`; chunks that an earlier try left there are kept where they are right.

    A piece that comes damaged is asked for again, three times in all. Raises WireError, CheckpointError, OSError; what came stays.
    """
    path = draft_path(folder, record.name)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(handle, record.body_bytes)
        if record.body_bytes:
            _fill(_Peer(url, token), record, memoryview(mmap.mmap(handle, record.body_bytes)), limit)
    finally:
        os.close(handle)


def _fill(peer: _Peer, record: Record, body: memoryview, limit: RateLimit) -> None:
    begin = CHUNK_BYTES * (wrong_chunk(body, record) or 0)
    if wrong_chunk(body, record) is None:
        return
    while begin < record.body_bytes:
        count = min(PIECE_BYTES, record.body_bytes - begin)
        piece = body[begin : begin + count]
        for attempt in range(_TRIES):
            limit.take(count)
            peer.read_into(f"/v1/records/{record.name}/body?from={begin}&bytes={count}", piece)
            bad = _bad_chunk(piece, record, begin // CHUNK_BYTES)
            if bad is None:
                break
            if attempt == _TRIES - 1:
                raise CheckpointError(f"chunk {bad} of {record.name} from {peer.url} is damaged")
        begin += count


def _bad_chunk(piece: memoryview, record: Record, first: int) -> int | None:
    for offset in range(0, len(piece), CHUNK_BYTES):
        index = first + offset // CHUNK_BYTES
        if zlib.crc32(piece[offset : offset + CHUNK_BYTES]) != record.chunks[index]:
            return index
    return None


class _Peer:
    """One kept connection to another cache."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url
        origin = Origin.of(url)
        self._connection = http.client.HTTPConnection(origin.host, origin.port, timeout=_SILENT_S)
        self._headers = {"Authorization": f"Bearer {token}"}

    def get(self, path: str, largest_bytes: int) -> bytes:
        with self._ask(path) as answer:
            data = answer.read(largest_bytes + 1)
        if len(data) > largest_bytes:
            raise WireError(f"{self.url}{path} answered more than {largest_bytes} bytes")
        return data

    def read_into(self, path: str, target: memoryview) -> None:
        done = 0
        with self._ask(path) as answer:
            while done < len(target):
                try:
                    count = answer.readinto(target[done:])
                except (OSError, http.client.HTTPException) as error:
                    raise NoAnswerError(f"{self.url} stopped in the middle of {path}: {error}") from error
                if not count:
                    raise NoAnswerError(f"{self.url} stopped in the middle of {path}")
                done += count
            answer.read()

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
