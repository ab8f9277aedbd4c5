"""The framing that all netlink families share (linux/netlink.h): messages in blocks, attributes in messages."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

__all__ = ["HEADER", "attributes", "messages", "open_netlink", "request"]

HEADER = struct.Struct("=IHHII")  # length, type, flags, sequence, port
_ATTRIBUTE = struct.Struct("=HH")  # length, type
_ERROR, _DONE = 2, 3
_BUFFER_BYTES = 1 << 17
_PATIENCE_S = 2.0


def open_netlink(family: int) -> socket.socket:
    """A socket to the kernel, in this process' own network namespace. Raises OSError."""
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, family)
    link.settimeout(_PATIENCE_S)
    return link


def request(kind: int, flags: int, body: bytes) -> bytes:
    """One message to the kernel."""
    return HEADER.pack(HEADER.size + len(body), kind, flags, 1, 0) + body


def messages(link: socket.socket, what: str, *, dump: bool = True) -> Iterator[tuple[int, memoryview]]:
    """(type, body) of each message of the answer, up to its end mark; without `dump` the answer is one block and has no end mark.

    Raises OSError where the kernel answers with an error; `what` was asked for.
    """
    while True:
        block = memoryview(link.recv(_BUFFER_BYTES))
        at = 0
        while at + HEADER.size <= len(block):
            size, kind, _, _, _ = HEADER.unpack_from(block, at)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", block, at + HEADER.size)[0]
                raise OSError(code, f"{what}: {os.strerror(code)}")
            yield kind, block[at + HEADER.size : at + size]
            at += _aligned(size)
        if not dump:
            return


def attributes(block: memoryview) -> Iterator[tuple[int, memoryview]]:
    """(type, value) of each attribute; what is cut off is left out."""
    at = 0
    while at + _ATTRIBUTE.size <= len(block):
        size, kind = _ATTRIBUTE.unpack_from(block, at)
        if size < _ATTRIBUTE.size:
            return
        yield kind, block[at + _ATTRIBUTE.size : at + size]
        at += _aligned(size)


def _aligned(size: int) -> int:
    return (size + 3) & ~3
