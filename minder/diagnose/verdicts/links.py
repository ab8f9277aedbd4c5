"""Links of machines: one that stays down while others are up, and one that goes and comes back again and again.

A flap that heals is no fault: networks and their retransmissions are made for it. Two within five minutes are the beginning of a fault
(ByteRobust, arXiv 2509.16293, real-time checks), which a person should look at: the cable, the transceiver and the switch are no part of
the machine.
What several machines' links do within seconds of each other is their switch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from minder.model.evidence import Signal

__all__ = ["LinkFinding", "LinkLimits", "LinkWatch"]

_SAME_S = 10.0  # one event: a port and its interface, all ports of an adapter, all machines of a switch


@dataclass(frozen=True, slots=True)
class LinkLimits:
    """flaps: so many on one machine within flap_window_s call a person, 0 never; down_s: so long down is no flap. In seconds."""

    flaps: int = 2
    flap_window_s: float = 300.0
    down_s: float = 45.0


@dataclass(frozen=True, slots=True)
class LinkFinding:
    """event: link.down or link.flap. signal: when it last went down. machines: those whose links did the same then."""

    event: str
    signal: Signal
    machines: tuple[str, ...]
    message: str


@dataclass(slots=True)
class _Port:
    down: Signal | None = None
    told: bool = False


@dataclass(slots=True)
class LinkWatch:
    """Feed `note` every link signal of a machine and ask `findings` at every observation; each is told once."""

    limits: LinkLimits = field(default_factory=LinkLimits)
    _ports: dict[tuple[str, str | None], _Port] = field(default_factory=dict)
    _flaps: dict[str, list[Signal]] = field(default_factory=dict)  # by machine, one an event
    _told_flaps_s: dict[str, float] = field(default_factory=dict)

    def note(self, signal: Signal) -> None:
        machine = signal.machine or ""
        port = self._ports.setdefault((machine, signal.device), _Port())
        if signal.data.get("state") == "down":
            port.down = port.down or signal
            return
        if port.down is not None and signal.time_s - port.down.time_s < self.limits.down_s:
            flaps = self._flaps.setdefault(machine, [])
            if all(abs(port.down.time_s - item.time_s) > _SAME_S for item in flaps):
                flaps.append(port.down)
        port.down, port.told = None, False

    def findings(self, now_s: float) -> Iterator[LinkFinding]:
        yield from self._lasting(now_s)
        yield from self._flapping(now_s)

    def _lasting(self, now_s: float) -> Iterator[LinkFinding]:
        down = {key: port for key, port in self._ports.items() if port.down is not None}
        for (_, device), port in down.items():
            if port.told or port.down is None or now_s - port.down.time_s < self.limits.down_s:
                continue
            since_s = port.down.time_s
            machines = {name for (name, _), other in down.items() if other.down and abs(other.down.time_s - since_s) <= _SAME_S}
            port.told = True
            message = " ".join(f"link {device or ''} down for {now_s - since_s:.0f} s".split())
            yield LinkFinding("link.down", port.down, tuple(sorted(machines)), message)

    def _flapping(self, now_s: float) -> Iterator[LinkFinding]:
        if self.limits.flaps < 1:
            return
        window_s = self.limits.flap_window_s
        self._flaps = {name: [item for item in flaps if now_s - item.time_s <= window_s] for name, flaps in self._flaps.items()}
        for machine, flaps in self._flaps.items():
            alone = [item for item in flaps if not self._is_shared(machine, item)]
            if len(alone) < self.limits.flaps or now_s - self._told_flaps_s.get(machine, float("-inf")) <= window_s:
                continue
            self._told_flaps_s[machine] = now_s
            names = sorted({item.device or "a link" for item in alone})
            message = f"{len(alone)} flaps of {', '.join(names)} in {now_s - alone[0].time_s:.0f} s"
            yield LinkFinding("link.flap", alone[-1], (machine,), message)

    def _is_shared(self, machine: str, flap: Signal) -> bool:
        others = (item for name, flaps in self._flaps.items() if name != machine for item in flaps)
        return any(abs(item.time_s - flap.time_s) <= _SAME_S for item in others)
