"""What failed on 400 real GPU servers in 348 days, and which kind of fault each entry is here.

Counts: the fault trace of InfiniteHBD (InfiniteHBD-Trace, Apache-2.0), 584 faults with class and description. Which kind an
entry is comes from us, by what it does to a job. An entry is no kind ("") where nothing says what it did: no cause was found; a stress
test or a person took the server away; a redundant part failed, so that training goes on; or no telemetry shows it.
"""

from __future__ import annotations

__all__ = ["FLEET", "fleet_counts"]

FLEET: dict[tuple[str, str], tuple[int, str]] = {
    ("GPU", "GPU DBE(Double Bit ECC) > Threshold"): (60, "ecc_error"),
    ("GPU", "GPU SBE(Single Bit ECC) > Threshold"): (1, "ecc_error"),
    ("GPU", "GPU device unknow error"): (40, "gpu_execution_error"),
    ("GPU", "GPU xid Error"): (11, "gpu_execution_error"),
    ("GPU", "GPU Lost"): (5, "gpu_card_drop"),
    ("GPU", "GPU device not found"): (1, "gpu_card_drop"),
    ("GPU", "nvidia-smi Timeout"): (9, "hang"),  # the driver does not answer
    ("GPU", "GPU PCI link width low"): (25, "pcie_downgrade"),
    ("NIC", "NIC PCI link Width low"): (1, "pcie_downgrade"),
    ("GPU", "GPU P2P Bandwidth Low"): (3, "nvlink_error"),
    ("GPU", "GPU Temperature High"): (2, "thermal_throttle"),
    ("Parameter Plane Cable", "Link Down"): (40, "nic_drop"),
    ("NIC", "Rnic Gid Error"): (11, "nic_drop"),
    ("NIC", "NIC Lost"): (8, "nic_drop"),
    ("NIC", "NIC Link Speed low"): (10, "optical_cable"),
    ("Change", "Remote Optical Module Failure"): (1, "optical_cable"),
    ("Motherboard", "Motherboard Failed"): (4, "machine_unreachable"),
    ("System Crash", "Server down"): (1, "machine_unreachable"),
    ("CPU", "Machine Check Exception ( Uncorrectable )"): (2, "kernel_panic"),
    ("Operating System", "Kernel Panic"): (1, "kernel_panic"),
    ("File System", "FS: Multiple Disk FS Error"): (2, "filesystem_mount"),
    ("File System", "FS Readonly"): (1, "filesystem_mount"),
    ("Unknown Error", "Unknown Error"): (144, ""),
    ("Stress Test Failure", "Unknown Error"): (97, ""),
    ("Fan", "Speed Critical (Sensor)"): (31, ""),
    ("Power Supply", "Power Supply Failure detected"): (25, ""),
    ("Training Task Troubleshooting", "Suspect Machine Offline"): (14, ""),
    ("Other Failures", "Unknown Error"): (13, ""),
    ("Software Tool", "Kubelet Date Absent"): (7, ""),
    ("Change", "Y-cables Taken offline"): (3, ""),
    ("Fan", "Redundancy Lost"): (2, ""),
    ("Test", "Temporarily Offline"): (2, ""),
    ("CPU", "Configuration Error"): (1, ""),
    ("Firmware", "Firmware mismatch"): (1, ""),
    ("GPU", "Silent Data Corruption"): (1, ""),
    ("Motherboard Battery", "Low"): (1, ""),
    ("Power Supply", "Redundancy Lost"): (1, ""),
    ("RAID Card", "Bus Correctable error"): (1, ""),
    ("Riser Card", "RiserCard Fault"): (1, ""),
}


def fleet_counts() -> dict[str, int]:
    """How often each kind happened; kinds that never did are not in it.

    >>> sum(fleet_counts().values())
    239
    """
    counts: dict[str, int] = {}
    for count, kind in FLEET.values():
        if kind:
            counts[kind] = counts.get(kind, 0) + count
    return counts
