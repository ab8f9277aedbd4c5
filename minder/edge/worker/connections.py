"""Cutting a generation's TCP connections, so that a collective whose peer is silent comes back.

Neither `abort` nor `shutdown` of torch 2.13's gloo group wakes an all-reduce that waits for a stopped peer (tried); shutting
the sockets down under it does, in some 30 ms, and the process can then form a new group. Only connections that were opened
since the generation began are cut: what a script opened before stays.
"""

from __future__ import annotations

import os
import socket

__all__ = ["cut_connections", "open_sockets"]

_FOLDER = "/proc/self/fd"


def open_sockets() -> frozenset[str]:
    """Inodes of the sockets that are open now, as /proc names them: `socket:[123]`."""
    return frozenset(_list_sockets().values())


def cut_connections(keep: frozenset[str]) -> int:
    """Shut down every established TCP connection of this process but those in `keep`; how many were cut."""
    count = 0
    for number, inode in _list_sockets().items():
        if inode not in keep:
            count += _cut(number)
    return count


def _list_sockets() -> dict[int, str]:
    found = {}
    for name in os.listdir(_FOLDER):  # noqa: PTH208 - called within a tenth of a second's budget, many times
        try:
            target = os.readlink(f"{_FOLDER}/{name}")  # noqa: PTH115
        except OSError:
            continue
        if target.startswith("socket:"):
            found[int(name)] = target
    return found


def _cut(number: int) -> int:
    """A duplicate is shut down: the descriptor itself stays with its owner, who sees an end of stream."""
    try:
        connection = socket.socket(fileno=os.dup(number))
    except OSError:
        return 0
    with connection:
        try:
            if connection.family not in (socket.AF_INET, socket.AF_INET6) or connection.type != socket.SOCK_STREAM:
                return 0
            connection.getpeername()
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return 0
    return 1
