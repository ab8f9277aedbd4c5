"""Interfaces of the machine's network namespace as counters, and their going up and down as signals."""

from __future__ import annotations

from collections.abc import Collection

from minder.edge.exporters.reading import Reading
from minder.edge.exporters.rtnetlink import Interface, list_interfaces, read_interfaces
from minder.model.evidence import Signal

__all__ = ["NetworkExporter", "choose_interfaces"]

_MOST = 16
_LIST_EVERY_S = 15.0


class NetworkExporter:
    """named: only these interfaces (lo too, if named). Otherwise the hardware, or where there is none (a container, a lab
    machine) everything but lo. Which there are is asked every 15 s; how the chosen ones are, at every sample."""

    def __init__(self, machine: str, named: Collection[str] = ()) -> None:
        self._machine = machine
        self._named = named
        self._before: dict[str, Interface] = {}
        self._listed_s = float("-inf")

    def read(self, now_s: float) -> Reading:
        """Raises OSError if the kernel does not answer."""
        reading = Reading()
        interfaces = self._interfaces(now_s)
        for item in interfaces:
            reading.counter("tcp_receive_bytes", item.receive_bytes, item.name)
            reading.counter("tcp_transmit_bytes", item.transmit_bytes, item.name)
            before = self._before.get(item.name)
            if before is not None:
                reading.signals.extend(_link_signals(before, item, self._machine, now_s))
        for name in self._before.keys() - {item.name for item in interfaces}:
            reading.signals.append(_link_signal(self._machine, name, "down", now_s, f"interface {name} is gone"))
        self._before = {item.name: item for item in interfaces}
        return reading

    def _interfaces(self, now_s: float) -> list[Interface]:
        if now_s - self._listed_s < _LIST_EVERY_S:
            found = read_interfaces(item.index for item in self._before.values())
            if len(found) == len(self._before):
                return found
        self._listed_s = now_s
        return choose_interfaces(list_interfaces(), self._named)


def choose_interfaces(found: list[Interface], named: Collection[str] = ()) -> list[Interface]:
    if named:
        return [item for item in found if item.name in named]
    candidates = [item for item in found if not item.loopback]
    hardware = [item for item in candidates if not item.kind]
    return (hardware or candidates)[:_MOST]


def _link_signals(before: Interface, now: Interface, machine: str, now_s: float) -> list[Signal]:
    """A change of state; and a flap that came and went between two looks, which only the carrier counter remembers."""
    was_up, is_up = before.state in ("up", "unknown"), now.state in ("up", "unknown")
    if was_up != is_up:
        state = "up" if is_up else "down"
        return [_link_signal(machine, now.name, state, now_s, f"interface {now.name}: {before.state} to {now.state}")]
    if is_up and now.carrier_changes >= before.carrier_changes + 2:
        message = f"interface {now.name} lost its carrier and came back"
        return [_link_signal(machine, now.name, state, now_s, message) for state in ("down", "up")]
    return []


def _link_signal(machine: str, device: str, state: str, now_s: float, message: str) -> Signal:
    return Signal(now_s, "link", machine, message, device=device, data={"state": state})
