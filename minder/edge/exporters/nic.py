"""Priority pauses and congestion marks from the network cards' own statistics (what `ethtool -S` prints).

Asking a card for its statistics costs milliseconds in firmware, so it is done every ten seconds; in between, the counters
stand still. Cards without such statistics (virtual ones, all of a lab's) export nothing.
"""

from __future__ import annotations

import array
import fcntl
import re
import socket
import struct
from collections.abc import Collection

from minder.edge.exporters.growth import Growth
from minder.edge.exporters.network import choose_interfaces
from minder.edge.exporters.reading import Reading
from minder.edge.exporters.rtnetlink import list_interfaces

__all__ = ["NicExporter", "pick_statistics", "read_statistics"]

_EVERY_S = 10.0
_SIOCETHTOOL = 0x8946
_GET_STRINGS, _GET_STATS, _GET_COUNT = 0x1B, 0x1D, 0x37
_STATS_SET = 1
_NAME_BYTES = 32
_PATTERNS = {
    "pfc_tx_packets": re.compile(
        r"^(tx_prio\d+_pause|tx_pfc_ena_frames_pri\d+|tx_priority_\d+_xoff(_tx)?|mac_tx_pfc_pri\d+_pkt_num|pfc\d_tx)$"
    ),
    "ecn_packets": re.compile(r"^(rx_ecn_mark|rx_ecn_marked_pkts)$"),
    "cnp_packets": re.compile(r"^(tx_cnp_pkts|rx_cnp_pkts|cnp_(tx|rx)_packets)$"),
}


class NicExporter:
    """named: only these interfaces, else the hardware ones."""

    def __init__(self, named: Collection[str] = ()) -> None:
        self._named = named
        self._read_s = float("-inf")
        self._growth: dict[tuple[str, str], Growth] = {}
        self._last = Reading()

    def read(self, now_s: float) -> Reading:
        """Raises OSError if the interfaces cannot be listed."""
        if now_s - self._read_s >= _EVERY_S:
            self._read_s = now_s
            self._last = Reading()
            for item in choose_interfaces(list_interfaces(), self._named):
                if not item.kind and not item.loopback:
                    self._note(item.name, read_statistics(item.name))
        return self._last

    def _note(self, device: str, statistics: dict[str, int]) -> None:
        for metric, values in pick_statistics(statistics).items():
            self._last.counter(metric, self._growth.setdefault((metric, device), Growth()).add(values), device)


def pick_statistics(statistics: dict[str, int]) -> dict[str, dict[str, int]]:
    """Per metric the driver's counters that belong to it; metrics without any are left out."""
    found = {metric: {name: value for name, value in statistics.items() if pattern.match(name)} for metric, pattern in _PATTERNS.items()}
    return {metric: values for metric, values in found.items() if values}


def read_statistics(interface: str) -> dict[str, int]:
    """All statistics of an interface's driver by name; empty where it has none or they may not be read."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
            head = _ask(handle, interface, struct.pack("=IIQI", _GET_COUNT, 0, 1 << _STATS_SET, 0))
            count = struct.unpack_from("=IIQI", head)[3]
            if not 0 < count <= 10_000:
                return {}
            strings = _ask(handle, interface, struct.pack("=III", _GET_STRINGS, _STATS_SET, count) + bytes(count * _NAME_BYTES))
            numbers = _ask(handle, interface, struct.pack("=II", _GET_STATS, count) + bytes(count * 8))
    except OSError:
        return {}
    names = [strings[12 + index * _NAME_BYTES :][:_NAME_BYTES].split(b"\0")[0].decode(errors="replace") for index in range(count)]
    return dict(zip((name.strip() for name in names), struct.unpack_from(f"={count}Q", numbers, 8), strict=True))


def _ask(handle: socket.socket, interface: str, request: bytes) -> bytes:
    """The kernel writes its answer over the request. Raises OSError."""
    block = array.array("B", request)
    address, _ = block.buffer_info()
    fcntl.ioctl(handle, _SIOCETHTOOL, struct.pack("16sP16x", interface.encode()[:15], address))
    return block.tobytes()
