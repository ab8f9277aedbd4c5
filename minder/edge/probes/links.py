"""State and speed of the machine's network ports, Ethernet and InfiniBand, as the kernel reports them. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from minder.edge.probes.contract import Finding, Probe
from minder.edge.probes.hardware import kernel_facts
from minder.edge.probes.program import run
from minder.model.probes import Measurement

__all__ = ["PROBE", "measure"]

PROBE = Probe(
    name="links",
    version=1,
    says="state and speed of network ports",
    limit_s=10.0,
    measures={
        "link_up": "1 up, 0 down, of one port",
        "link_speed": "bit/s that the port has agreed on with its switch",
        "link_changes": "times that it has come or gone since the start",
    },
    source="ByteRobust's NIC checks",
    disturbs=False,
)

_ETHERNET = "1"  # ARPHRD_ETHER
_NET, _INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")


def measure(options: Mapping[str, Any], net: Path = _NET, infiniband: Path = _INFINIBAND) -> Finding:
    """Ports with hardware behind them; in a container that has none, its own Ethernet interfaces."""
    interfaces = [path for path in _sorted(net) if _text(path / "type") == _ETHERNET]
    chosen = [path for path in interfaces if (path / "device").exists()] or interfaces
    measures = [item for path in chosen for item in _interface(path)]
    measures += [item for port in _ports(infiniband) for item in _port(port)]
    if not measures:
        return Finding("not_applicable", "the kernel shows no network port")
    return Finding("measured", "", tuple(measures), kernel_facts())


def _interface(path: Path) -> Iterator[Measurement]:
    state, name = _text(path / "operstate"), path.name
    if state in ("up", "down", "lowerlayerdown", "dormant"):
        yield Measurement("link_up", float(state == "up"), "", "higher", name, bad="fail")
    speed = _number(path / "speed")  # Mbit/s; -1 or an error where it is not known, or the link is down
    if speed is not None and speed > 0:
        yield Measurement("link_speed", speed * 1e6, "bit/s", "higher", name)
    changes = _number(path / "carrier_changes")
    if changes is not None:
        yield Measurement("link_changes", changes, "", "none", name)


def _ports(infiniband: Path) -> list[Path]:
    return [port for device in _sorted(infiniband) for port in _sorted(device / "ports")]


def _port(path: Path) -> Iterator[Measurement]:
    name, state = f"{path.parent.parent.name}/{path.name}", _text(path / "state")  # "4: ACTIVE"
    if state:
        yield Measurement("link_up", float("ACTIVE" in state), "", "higher", name, bad="fail")
    rate = _text(path / "rate").split()  # "400 Gb/sec (4X NDR)"
    if rate and rate[0].replace(".", "", 1).isdigit():
        yield Measurement("link_speed", float(rate[0]) * 1e9, "bit/s", "higher", name)
    downed = _number(path / "counters" / "link_downed")
    if downed is not None:
        yield Measurement("link_changes", downed, "", "none", name)


def _sorted(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> float | None:
    try:
        return float(_text(path))
    except ValueError:
        return None


if __name__ == "__main__":
    run(PROBE, measure)
