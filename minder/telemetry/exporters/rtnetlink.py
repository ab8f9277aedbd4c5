"""The network interfaces of this process' own network namespace, by RTM_GETLINK (linux/rtnetlink.h, linux/if_link.h).

/sys/class/net shows the namespace in which /sys was mounted, which is the host's for an agent that entered another one.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Interface", "list_interfaces"]

_NETLINK_ROUTE = 0
_RTM_GETLINK, _RTM_NEWLINK, _ERROR, _DONE = 18, 16, 2, 3
_IFLA_IFNAME, _IFLA_OPERSTATE, _IFLA_LINKINFO, _IFLA_STATS64, _IFLA_CARRIER_CHANGES = 3, 16, 18, 23, 35
_IFLA_INFO_KIND = 1
_HEADER = struct.Struct("=IHHII")
_IFINFO = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")
_STATS = struct.Struct("=8Q")  # rtnl_link_stats64: rx, tx packets; rx, tx bytes; rx, tx errors; rx, tx dropped
_LOOPBACK = 0x8
_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")


@dataclass(frozen=True, slots=True)
class Interface:
    """kind is "" for hardware, else what made it: veth, bridge, bond, vlan, macvlan, dummy."""

    name: str
    kind: str
    loopback: bool
    state: str
    receive_bytes: int
    transmit_bytes: int
    errors: int
    carrier_changes: int


def list_interfaces() -> list[Interface]:
    """All interfaces of the namespace. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE) as link:
        link.settimeout(2.0)
        body = _IFINFO.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
        link.send(_HEADER.pack(_HEADER.size + len(body), _RTM_GETLINK, 0x301, 1, 0) + body)
        return [_decode(message) for message in _messages(link)]


def _messages(link: socket.socket) -> Iterator[memoryview]:
    while True:
        block = memoryview(link.recv(1 << 17))
        at = 0
        while at + _HEADER.size <= len(block):
            size, kind, _, _, _ = _HEADER.unpack_from(block, at)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", block, at + _HEADER.size)[0]
                raise OSError(code, f"list of network interfaces: {os.strerror(code)}")
            if kind == _RTM_NEWLINK:
                yield block[at + _HEADER.size : at + size]
            at += (size + 3) & ~3


def _attributes(block: memoryview) -> dict[int, memoryview]:
    found: dict[int, memoryview] = {}
    at = 0
    while at + _ATTRIBUTE.size <= len(block):
        size, kind = _ATTRIBUTE.unpack_from(block, at)
        if size < _ATTRIBUTE.size:
            break
        found[kind & 0x3FFF] = block[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3
    return found


def _text(block: memoryview | None) -> str:
    return bytes(block).rstrip(b"\0").decode(errors="replace") if block is not None else ""


def _decode(message: memoryview) -> Interface:
    flags = _IFINFO.unpack_from(message, 0)[3]
    found = _attributes(message[_IFINFO.size :])
    info = _attributes(found[_IFLA_LINKINFO]) if _IFLA_LINKINFO in found else {}
    stats = _STATS.unpack_from(found[_IFLA_STATS64]) if _IFLA_STATS64 in found else (0,) * 8
    state = found[_IFLA_OPERSTATE][0] if _IFLA_OPERSTATE in found else 0
    changes = found.get(_IFLA_CARRIER_CHANGES)
    return Interface(
        name=_text(found.get(_IFLA_IFNAME)),
        kind=_text(info.get(_IFLA_INFO_KIND)),
        loopback=bool(flags & _LOOPBACK),
        state=_STATES[state] if state < len(_STATES) else "unknown",
        receive_bytes=stats[2],
        transmit_bytes=stats[3],
        errors=stats[4] + stats[5],
        carrier_changes=struct.unpack("=I", changes)[0] if changes is not None else 0,
    )
