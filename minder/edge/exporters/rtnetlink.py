"""The network interfaces of this process' own network namespace, by RTM_GETLINK (linux/rtnetlink.h, linux/if_link.h).

/sys/class/net shows the namespace in which /sys was mounted, which is the host's for an agent that entered another one.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from minder.edge.exporters.netlink import attributes, messages, open_netlink, request

__all__ = ["Interface", "list_interfaces", "read_interfaces"]

_NETLINK_ROUTE = 0
_REQUEST_ONE, _REQUEST_DUMP = 0x1, 0x301
_RTM_GETLINK, _RTM_NEWLINK = 18, 16
_IFLA_IFNAME, _IFLA_OPERSTATE, _IFLA_LINKINFO, _IFLA_STATS64, _IFLA_CARRIER_CHANGES = 3, 16, 18, 23, 35
_IFLA_INFO_KIND = 1
_IFINFO = struct.Struct("=BxHiII")
_STATS = struct.Struct("=8Q")  # rtnl_link_stats64: rx, tx packets; rx, tx bytes; rx, tx errors; rx, tx dropped
_LOOPBACK = 0x8
_STATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")


@dataclass(frozen=True, slots=True)
class Interface:
    """kind is "" for hardware, else what made it: veth, bridge, bond, vlan, macvlan, dummy."""

    index: int
    name: str
    kind: str
    loopback: bool
    state: str
    receive_bytes: int
    transmit_bytes: int
    errors: int
    carrier_changes: int


def list_interfaces() -> list[Interface]:
    """All interfaces of the namespace: tens of microseconds each, hundreds of them on a host of containers. Raises OSError."""
    with open_netlink(_NETLINK_ROUTE) as link:
        link.send(_request(0, _REQUEST_DUMP))
        return list(_links(link, dump=True))


def read_interfaces(indexes: Iterable[int]) -> list[Interface]:
    """These interfaces; one that is gone is left out. Raises OSError."""
    found: list[Interface] = []
    with open_netlink(_NETLINK_ROUTE) as link:
        for index in indexes:
            link.send(_request(index, _REQUEST_ONE))
            try:
                found.extend(_links(link, dump=False))
            except OSError as error:
                if error.errno != errno.ENODEV:
                    raise
    return found


def _request(index: int, flags: int) -> bytes:
    return request(_RTM_GETLINK, flags, _IFINFO.pack(socket.AF_UNSPEC, 0, index, 0, 0))


def _links(link: socket.socket, *, dump: bool) -> Iterator[Interface]:
    return (_decode(body) for kind, body in messages(link, "network interfaces", dump=dump) if kind == _RTM_NEWLINK)


def _text(block: memoryview | None) -> str:
    return bytes(block).rstrip(b"\0").decode(errors="replace") if block is not None else ""


def _decode(message: memoryview) -> Interface:
    _, _, index, flags, _ = _IFINFO.unpack_from(message, 0)
    found = dict(attributes(message[_IFINFO.size :]))
    info = dict(attributes(found[_IFLA_LINKINFO])) if _IFLA_LINKINFO in found else {}
    stats = _STATS.unpack_from(found[_IFLA_STATS64]) if _IFLA_STATS64 in found else (0,) * 8
    state = found[_IFLA_OPERSTATE][0] if _IFLA_OPERSTATE in found else 0
    changes = found.get(_IFLA_CARRIER_CHANGES)
    return Interface(
        index=index,
        name=_text(found.get(_IFLA_IFNAME)),
        kind=_text(info.get(_IFLA_INFO_KIND)),
        loopback=bool(flags & _LOOPBACK),
        state=_STATES[state] if state < len(_STATES) else "unknown",
        receive_bytes=stats[2],
        transmit_bytes=stats[3],
        errors=stats[4] + stats[5],
        carrier_changes=struct.unpack("=I", changes)[0] if changes is not None else 0,
    )
