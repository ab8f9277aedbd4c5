"""The faults: how often they happen, what they do to the job, and which metric groups of the culprit may show them.

Shares: Minder (NSDI'25) table 1, seven months; what it does not list, from ByteRobust (SOSP'25) table 1, in the same unit: percent. MFU
decline there, 0.8, is slow_gpu and thermal_throttle here, each; a switch that fails is in neither: 0.5 is ours. Another mix: fleet.py.
Which group shows a fault is only known in words (no single metric covers all faults, CPU and GPU cover most, PCIe downgrading shows in
congestion counters, network faults in congestion and throughput, "or" between them): the chances below are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from minder.simulate.cluster.fleet import fleet_counts

__all__ = ["FAULTS", "Fault", "Mix", "share_of"]

Mix = Literal["published", "fleet"]  # of two papers (this file), or as counted on 400 real servers (fleet.py)
Effect = Literal["stall", "slow", "crash", "silent", "flapping"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault.

    effect: what it does to the job. stall: peers spin in the collective; slow: everybody waits for the culprit at every step; crash: its
    processes end; silent: the machine is gone with its exporters; flapping: stalls of seconds that come back. shows: chance per metric
    group of the culprit. moves: by which factor such a group changes, where that is not "nothing happens any more". stretch: by how much a
    step gets longer. grey: no log line announces it. reach: it hits so many machines of one switch together.
    """

    share: float
    effect: Effect
    shows: Mapping[str, float]
    moves: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    stretch: tuple[float, float] = (0.15, 1.0)
    signal: str = ""
    grey: bool = False
    held_out: bool = False
    reach: int = 1


_SURGE = (4.0, 60.0)
_GPU_STALL = {"cpu": 0.7, "duty": 0.65, "power": 0.65, "compute": 0.65, "fabric": 0.4}

FAULTS: dict[str, Fault] = {
    "ecc_error": Fault(38.9, "stall", {**_GPU_STALL, "cpu": 0.8, "congestion": 0.09}, signal="xid 94"),
    "cuda_execution_error": Fault(14.6, "stall", {**_GPU_STALL, "cpu": 0.6, "duty": 0.8}, signal="xid 31"),
    "gpu_execution_error": Fault(7.7, "stall", {**_GPU_STALL, "cpu": 0.5, "fabric": 0.2}, signal="xid 13"),
    "gpu_card_drop": Fault(2.0, "stall", {"cpu": 0.5, "duty": 0.8, "power": 0.9, "compute": 0.9}, signal="xid 79"),
    "hang": Fault(9.9, "stall", {"cpu": 0.7, "duty": 0.5, "power": 0.8, "compute": 0.8, "fabric": 0.6}),
    "hdfs_error": Fault(5.7, "stall", {"cpu": 0.8, "tcp": 0.8, "duty": 0.5, "compute": 0.4}, signal="log hdfs"),
    "filesystem_mount": Fault(
        2.1, "stall", {"cpu": 0.8, "tcp": 0.9, "memory": 0.3, "duty": 0.4}, {"cpu": (1.5, 2.4)}, signal="log mount", held_out=True
    ),
    "nic_drop": Fault(
        5.7, "stall", {"fabric": 0.9, "congestion": 0.7, "tcp": 0.5, "power": 0.3}, {"congestion": _SURGE},
        signal="link down", held_out=True,
    ),
    "pcie_downgrade": Fault(
        6.6, "slow", {"pcie": 0.9, "congestion": 0.95}, {"pcie": (0.25, 0.65), "congestion": (6.0, 90.0)}, (0.1, 0.5), grey=True
    ),
    "nvlink_error": Fault(
        1.7, "slow", {"fabric": 0.95, "compute": 0.4, "power": 0.4}, {"fabric": (0.3, 0.7)}, (0.2, 0.8), "xid 74", grey=True, held_out=True
    ),
    "optical_cable": Fault(
        0.9, "slow", {"fabric": 0.6, "congestion": 0.95}, {"fabric": (0.5, 0.85), "congestion": _SURGE}, (0.1, 0.5), grey=True
    ),
    "thermal_throttle": Fault(
        0.8, "slow", {"temperature": 0.9, "clock": 0.95, "power": 0.7},
        {"temperature": (1.15, 1.4), "clock": (0.55, 0.85), "power": (0.7, 0.9)}, (0.15, 0.7), grey=True,
    ),
    "slow_gpu": Fault(
        0.8, "slow", {"clock": 0.9, "power": 0.8, "compute": 0.6},
        {"clock": (0.5, 0.85), "power": (0.6, 0.9), "compute": (0.7, 0.95)}, (0.15, 0.9), grey=True,
    ),
    "slow_cpu": Fault(
        11.0, "slow", {"cpu": 0.95, "duty": 0.7, "power": 0.5}, {"cpu": (1.6, 2.8), "duty": (0.55, 0.85), "power": (0.7, 0.9)},
        held_out=True,
    ),
    "link_flapping": Fault(
        2.9, "flapping", {"fabric": 0.95, "congestion": 0.8}, {"congestion": _SURGE}, signal="link flap", held_out=True
    ),
    "out_of_memory": Fault(10.1, "crash", {"memory": 0.9}, {"memory": (1.3, 1.9)}, signal="exit 9"),
    "disk_full": Fault(5.0, "crash", {"disk": 0.95}, {"disk": (1.9, 3.0)}, signal="exit 1", held_out=True),
    "machine_unreachable": Fault(6.0, "silent", {}),
    "kernel_panic": Fault(0.4, "silent", {"cpu": 0.3}, {"cpu": (1.5, 2.5)}, signal="kernel panic", held_out=True),
    "switch_down": Fault(0.5, "stall", {"fabric": 1.0, "tcp": 0.6, "congestion": 0.5}, {"congestion": _SURGE}, held_out=True, reach=16),
}  # fmt: skip


def share_of(kind: str, mix: Mix, even: bool) -> float:
    """How often the kind happens beside others: percent of the published mix, or faults counted in the fleet; 0.0 if never; 1.0 if even."""
    if even:
        return 1.0
    return FAULTS[kind].share if mix == "published" else float(fleet_counts().get(kind, 0))
