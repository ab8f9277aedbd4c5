"""RDMA ports from sysfs (Documentation/ABI/stable/sysfs-class-infiniband): throughput, waiting, errors, congestion."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from minder.edge.exporters.growth import Growth
from minder.edge.exporters.procfs import read_text
from minder.edge.exporters.reading import Reading
from minder.model.evidence import Signal

__all__ = ["InfinibandExporter"]

_WORD_BYTES = 4  # port_*_data counts 32-bit words
_MOST_PORTS = 16
# Bits of the classic performance counters: at all ones they stand still, and what they say is no data.
_BITS = {
    "symbol_error": 16,
    "link_error_recovery": 8,
    "link_downed": 8,
    "port_rcv_errors": 16,
    "port_xmit_discards": 16,
    "local_link_integrity_errors": 4,
    "excessive_buffer_overrun_errors": 4,
}
_ERRORS = ("symbol_error", "link_error_recovery", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors")
# Metric to the raw counters that make it up, (folder, name).
_SOURCES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "rdma_receive_bytes": (("counters", "port_rcv_data"),),
    "rdma_transmit_bytes": (("counters", "port_xmit_data"),),
    "rdma_xmit_wait": (("counters", "port_xmit_wait"),),
    "link_errors": tuple(("counters", name) for name in _ERRORS),
    "link_downs": (("counters", "link_downed"),),
    "ecn_packets": (("hw_counters", "np_ecn_marked_roce_packets"),),
    "cnp_packets": (("hw_counters", "np_cnp_sent"), ("hw_counters", "rp_cnp_handled")),
    "rdma_retries": (("hw_counters", "local_ack_timeout_err"), ("hw_counters", "rnr_nak_retry_err"), ("hw_counters", "packet_seq_err")),
}


class InfinibandExporter:
    """root: /sys/class/infiniband. No such folder: no RDMA here, nothing to tell."""

    def __init__(self, root: Path = Path("/sys/class/infiniband"), machine: str | None = None) -> None:
        self._root = root
        self._machine = machine
        self._growth: dict[tuple[str, str], Growth] = {}
        self._states: dict[str, str] = {}

    def read(self, now_s: float) -> Reading:
        reading = Reading()
        for device, port in self._ports()[:_MOST_PORTS]:
            for metric, sources in _SOURCES.items():
                values = {name: value for folder, name in sources for value in (_counter(port, folder, name),) if value is not None}
                growth = self._growth.setdefault((metric, device), Growth())
                if values:
                    scale = _WORD_BYTES if metric.endswith("_bytes") else 1
                    reading.counter(metric, growth.add(values) * scale, device)
            self._note_state(reading, device, port, now_s)
        return reading

    def _ports(self) -> list[tuple[str, Path]]:
        """(name, folder); the first port has its adapter's name, others "mlx5_0/2"."""
        try:
            adapters = sorted(entry.name for entry in os.scandir(self._root))
        except OSError:
            return []
        found: list[tuple[str, Path]] = []
        for adapter in adapters:
            ports = self._root / adapter / "ports"
            numbers = sorted(entry.name for entry in os.scandir(ports)) if ports.is_dir() else []
            found += [(adapter if number == "1" else f"{adapter}/{number}", ports / number) for number in numbers]
        return found

    def _note_state(self, reading: Reading, device: str, port: Path, now_s: float) -> None:
        state = (read_text(str(port / "state")) or "").partition(":")[2].strip()
        before = self._states.get(device)
        if state:
            self._states[device] = state
        if before and state and (before == "ACTIVE") != (state == "ACTIVE"):
            data = {"state": "up" if state == "ACTIVE" else "down"}
            reading.signals.append(Signal(now_s, "link", self._machine, f"port {device}: {before} to {state}", device=device, data=data))


def _counter(port: Path, folder: str, name: str) -> int | None:
    text = (read_text(str(port / folder / name)) or "").strip()
    if not text.isdigit():
        return None
    value = int(text)
    full = (1 << _BITS.get(name, 32)) - 1
    return None if value in (full, (1 << 32) - 1, (1 << 64) - 1) else value
