"""Established TCP connections with the kernel's own numbers, by NETLINK_SOCK_DIAG (linux/inet_diag.h, linux/tcp.h).

A dump covers the whole network namespace; only the sockets asked for are decoded. The request is the older of the two
kinds (TCPDIAG_GETSOCK): it alone gives IPv4 and IPv6 in one walk of the kernel's table, which is what a dump costs.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Container
from dataclasses import dataclass

from minder.edge.exporters.netlink import attributes, messages, open_netlink, request

__all__ = ["ESTABLISHED", "LISTENING", "OPENING", "Connection", "dump_connections"]

_NETLINK_SOCK_DIAG = 4
_TCPDIAG_GETSOCK = 18
_REQUEST_DUMP = 0x1 | 0x300
_INET_DIAG_INFO = 2
ESTABLISHED, OPENING, LISTENING = 1 << 1, 1 << 2, 1 << 10  # TCP_ESTABLISHED, TCP_SYN_SENT, TCP_LISTEN of the kernel's states
_REQUEST = struct.Struct("=BBBB48sII")  # family, prefix lengths, extensions, socket id, states, dump marker
_INODE_AT = 68  # idiag_inode in inet_diag_msg
_INODE = struct.Struct("=I")
_QUEUES = struct.Struct("=II")  # idiag_rqueue, idiag_wqueue, at 56 of the message
_PORTS = struct.Struct("!HH")
_MESSAGE_SIZE = 72
_MAPPED = bytes(10) + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Connection:
    """One end of an established connection; fields are tcp_info's, in base units. Ages are since the last data packet."""

    inode: int
    local: str
    remote: str
    receive_queue_bytes: int
    send_queue_bytes: int
    unacked_segments: int
    retransmits: int
    backoff: int
    total_retransmits: int
    round_trip_s: float
    bytes_acked: int
    bytes_received: int
    last_send_age_s: float
    last_receive_age_s: float
    unanswered_probes: int
    unsent_bytes: int


def dump_connections(inodes: Container[int] | None = None, states: int = ESTABLISHED) -> tuple[list[Connection], set[int]]:
    """(the connections among `inodes`, or all; every inode of this namespace in one of `states`). Raises OSError."""
    found: list[Connection] = []
    seen: set[int] = set()
    with open_netlink(_NETLINK_SOCK_DIAG) as link:
        body = _REQUEST.pack(socket.AF_INET, 0, 0, 1 << (_INET_DIAG_INFO - 1), b"", states, 0)
        link.send(request(_TCPDIAG_GETSOCK, _REQUEST_DUMP, body))
        for _, message in messages(link, "socket diagnostics"):
            inode = _INODE.unpack_from(message, _INODE_AT)[0]
            seen.add(inode)
            if inodes is None or inode in inodes:
                found.append(_decode(message, inode))
    return found, seen


def _decode(message: memoryview, inode: int) -> Connection:
    local_port, remote_port = _PORTS.unpack_from(message, 4)
    family = message[0]
    received, sent = _QUEUES.unpack_from(message, 56)
    info = _tcp_info(message)

    def u8(at: int) -> int:
        return info[at] if at < len(info) else 0

    def u32(at: int) -> int:
        return int(struct.unpack_from("=I", info, at)[0]) if at + 4 <= len(info) else 0

    def u64(at: int) -> int:
        return int(struct.unpack_from("=Q", info, at)[0]) if at + 8 <= len(info) else 0

    return Connection(
        inode=inode,
        local=_address(bytes(message[8:24]), family, local_port),
        remote=_address(bytes(message[24:40]), family, remote_port),
        receive_queue_bytes=received,
        send_queue_bytes=sent,
        unacked_segments=u32(24),
        retransmits=u8(2),
        backoff=u8(4),
        total_retransmits=u32(100),
        round_trip_s=u32(68) / 1e6,
        bytes_acked=u64(120),
        bytes_received=u64(128),
        last_send_age_s=u32(44) / 1e3,
        last_receive_age_s=u32(52) / 1e3,
        unanswered_probes=u8(3),
        unsent_bytes=u32(144),
    )


def _tcp_info(message: memoryview) -> memoryview:
    return next((value for kind, value in attributes(message[_MESSAGE_SIZE:]) if kind == _INET_DIAG_INFO), message[:0])


def _address(raw: bytes, family: int, port: int) -> str:
    """IPv4 inside IPv6 is written as IPv4, so that both ends of a connection have the same name."""
    if family == socket.AF_INET:
        return f"{socket.inet_ntop(socket.AF_INET, raw[:4])}:{port}"
    if raw[:12] == _MAPPED:
        return f"{socket.inet_ntop(socket.AF_INET, raw[12:])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, raw)}]:{port}"
