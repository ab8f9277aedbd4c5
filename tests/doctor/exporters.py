"""Pages of exporters as they are written by their sources: two GPUs a machine, at work."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

__all__ = ["dcgm", "labelled", "lines", "node", "pods"]

CARDS = (0, 1)


def lines(name: str, value: float | str, cards: Sequence[int] = CARDS, card: str = "gpu", more: str = "") -> str:
    """One line for each card. {} in `more` becomes the card's number."""
    return "".join(f'{name}{{{card}="{number}"{"," if more else ""}{more.replace("{}", str(number))}}} {value}\n' for number in cards)


def dcgm(machine: str, host: str = "", cards: Sequence[int] = CARDS, more: str = "", busy: float = 97.0) -> str:
    """NVIDIA's DCGM exporter. host: what it says as Hostname; empty: nothing."""
    own = f'UUID="GPU-{machine}-{{}}",modelName="H100"' + (f',Hostname="{host}"' if host else "") + (f",{more}" if more else "")
    fields = {
        "DCGM_FI_DEV_GPU_UTIL": busy, "DCGM_FI_DEV_POWER_USAGE": 612.5 if busy else 70.0, "DCGM_FI_DEV_GPU_TEMP": 60,
        "DCGM_FI_DEV_SM_CLOCK": 1980, "DCGM_FI_DEV_FB_USED": 60000, "DCGM_FI_DEV_FB_FREE": 20000,
    }  # fmt: skip
    return "".join(lines(name, value, cards, more=own) for name, value in fields.items())


def node(machine: str, uname: bool = True, network: bool = True) -> str:
    """node_exporter."""
    page = f'node_uname_info{{nodename="{machine}",sysname="Linux"}} 1\n' if uname else ""
    page += "node_memory_MemAvailable_bytes 4e11\nnode_memory_MemTotal_bytes 1e12\n"
    for mode, seconds in (("idle", 5000), ("user", 3000), ("system", 200)):
        page += f'node_cpu_seconds_total{{cpu="0",mode="{mode}"}} {seconds}\n'
    if network:
        page += 'node_network_receive_bytes_total{device="eth0"} 5e12\nnode_network_transmit_bytes_total{device="eth0"} 5e12\n'
    return page


def pods(rows: Sequence[Mapping[str, str]]) -> str:
    """kube-state-metrics' kube_pod_info."""
    return "".join("kube_pod_info{" + ",".join(f'{key}="{value}"' for key, value in row.items()) + "} 1\n" for row in rows)


def labelled(page: str, **labels: str) -> str:
    """Every series with these labels in front of its own."""
    given = ",".join(f'{key}="{value}"' for key, value in labels.items())
    found = []
    for line in page.splitlines():
        name, rest = re.match(r"([\w:]+)(.*)", line).groups()  # type: ignore[union-attr]
        found.append(f"{name}{{{given}{',' + rest[1:] if rest.startswith('{') else '}' + rest}")
    return "\n".join(found) + "\n"
