"""An HTTP/1 answer, put together from bytes as they arrive. Only what answers to our own questions need, and bounded in everything."""

from __future__ import annotations

import re
from dataclasses import dataclass

from minder.model.errors import NoAnswerError

__all__ = ["Answer", "AnswerReader"]

_LARGEST_HEAD = 64 * 1024
_LARGEST_LINE = 4096  # of a chunk's size and what may follow it
_STATUS = re.compile(rb"HTTP/1\.([01]) (\d{3})(?: |$)")
_HEX = re.compile(rb"[0-9A-Fa-f]{1,8}")
_NO_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Answer:
    """keep: the connection may be used for another question."""

    status: int
    body: bytes
    keep: bool


class AnswerReader:
    """`feed` what arrives until it returns the answer; `end` when the peer has closed. One instance per answer.

    Raises NoAnswerError for what is no HTTP/1, for a body that was cut off, is packed or is larger than largest_bytes.
    """

    def __init__(self, largest_bytes: int) -> None:
        self.heard = False
        self._largest = largest_bytes
        self._buffer = bytearray()
        self._status = 0  # 0: the head is not complete
        self._keep = True
        self._length: int | None = None  # of the body; None: until the peer closes, or in chunks
        self._chunked = False
        self._body = bytearray()  # of chunks

    def feed(self, data: bytes) -> Answer | None:
        self.heard = True
        self._buffer += data
        while not self._status:
            if not self._read_head():
                return None
        if self._chunked:
            return self._read_chunks()
        if self._length is not None and len(self._buffer) >= self._length:
            body = bytes(self._buffer[: self._length])
            return Answer(self._status, body, self._keep and len(self._buffer) == self._length)
        self._bound(len(self._buffer))
        return None

    def end(self) -> Answer:
        """The peer closed: whole only if no header gave the answer's length."""
        if not self.heard:
            raise NoAnswerError("the peer closed the connection without sending a response")
        if self._status and self._length is None and not self._chunked:
            return Answer(self._status, bytes(self._buffer), keep=False)
        got = len(self._body) + len(self._buffer)
        raise NoAnswerError(f"the peer closed the connection within its answer, after {got} of {self._length or 'unknown'} bytes")

    def _bound(self, size: int) -> None:
        if size > self._largest:
            raise NoAnswerError(f"the answer is larger than {self._largest / 2**20:g} MiB")

    def _read_head(self) -> bool:
        """True when a head is complete, also that of an interim answer (1xx), which is left out."""
        end, width = self._buffer.find(b"\r\n\r\n"), 4
        if end < 0:
            end, width = self._buffer.find(b"\n\n"), 2
        if end > _LARGEST_HEAD or (end < 0 and len(self._buffer) > _LARGEST_HEAD):
            raise NoAnswerError("the head of the answer does not end")
        if end < 0:
            if not b"HTTP/1.".startswith(bytes(self._buffer[:7])):
                raise NoAnswerError("what answers does not speak HTTP/1")
            return False
        lines = bytes(self._buffer[:end]).split(b"\n")
        del self._buffer[: end + width]
        match = _STATUS.match(lines[0].rstrip(b"\r"))
        if match is None:
            raise NoAnswerError("what answers does not speak HTTP/1")
        status = int(match[2])
        if 100 <= status < 200 and status != 101:
            return True
        self._keep = match[1] == b"1"
        self._read_headers(lines[1:])
        if status in _NO_BODY:
            self._length, self._chunked = 0, False
        self._status = status
        return True

    def _read_headers(self, lines: list[bytes]) -> None:
        for line in lines:
            name, _, value = line.partition(b":")
            name, value = name.strip().lower(), value.strip()
            if name == b"content-length":
                if not value.isdigit() or len(value) > 15 or self._length not in (None, int(value)):
                    raise NoAnswerError(f"the answer's length is no number: {value[:40]!r}")
                self._length = int(value)
                self._bound(self._length)
            elif name == b"transfer-encoding":
                if value.lower() != b"chunked":
                    raise NoAnswerError(f"the answer comes as {value[:40]!r}, which was not asked for")
                self._chunked = True
            elif name == b"content-encoding" and value.lower() not in (b"identity", b""):
                raise NoAnswerError(f"the answer is packed ({value[:40]!r}), which was not asked for")
            elif name == b"connection":
                options = {option.strip() for option in value.lower().split(b",")}
                self._keep = (self._keep or b"keep-alive" in options) and b"close" not in options
        if self._chunked:
            self._length = None  # chunks tell

    def _read_chunks(self) -> Answer | None:
        """Moves whole chunks from the buffer to the body."""
        while (end := self._buffer.find(b"\n")) >= 0:
            size_text = bytes(self._buffer[:end]).partition(b";")[0].strip()
            if _HEX.fullmatch(size_text) is None:
                raise NoAnswerError(f"the answer's chunks are broken: {size_text[:40]!r}")
            size = int(size_text, 16)
            self._bound(len(self._body) + size)
            if size == 0:
                return self._read_trailers(end + 1)
            if len(self._buffer) < end + 1 + size + 2:
                return None
            if self._buffer[end + 1 + size : end + 3 + size] != b"\r\n":
                raise NoAnswerError("the answer's chunks are broken: one is longer than it says")
            self._body += self._buffer[end + 1 : end + 1 + size]
            del self._buffer[: end + 3 + size]
        if len(self._buffer) > _LARGEST_LINE:
            raise NoAnswerError("the answer's chunks are broken: a size does not end")
        return None

    def _read_trailers(self, start: int) -> Answer | None:
        """What follows the last chunk, up to an empty line, is left out."""
        rest = bytes(self._buffer[start:])
        end = 2 if rest.startswith(b"\r\n") else rest.find(b"\r\n\r\n") + 4
        if end < 4 and end != 2:
            if len(rest) > _LARGEST_HEAD:
                raise NoAnswerError("the answer does not end")
            return None
        return Answer(self._status, bytes(self._body), self._keep and len(rest) == end)
