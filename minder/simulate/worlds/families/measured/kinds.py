"""What can happen in this family, each with one sentence, and which metrics show it."""

from __future__ import annotations

__all__ = ["CAUSES", "ENDING", "FAULTS", "GREY", "NEEDS", "NUISANCES"]

FAULTS: dict[str, str] = {
    "busy_processor": "Processes of no job load the machine's cores; its SMs starve and its peers wait.",
    "dirty_optics": "Bit errors on one port: its error and congestion counters stand far above its neighbours'.",
    "early_stall": "A rank stands still within the first three minutes.",
    "ecc_errors": "Memory errors count up on one GPU and the job stops.",
    "flat_clock": "One machine's clock sits well below its peers' and does not move with load.",
    "frozen_gauges": "All gauges of the machine repeat their last digits, while its peers drop to waiting.",
    "full_disk": "The disk is full when a checkpoint is written; the machine never comes back from it.",
    "gpu_lost": "A GPU is gone from the bus and the job stops.",
    "group_silent": "The machines of one rack or switch are dark some minutes before the job stops.",
    "group_slow": "The machines of one rack, switch or stage hold the others back.",
    "link_flap": "A port that goes down and up again.",
    "machine_dead": "The machine is off: no more rows, and peers that wait.",
    "memory_leak": "Host memory runs full, the kernel kills the rank.",
    "nvlink_lane": "A lane of NVLink is lost.",
    "pcie_width": "A PCIe link with fewer lanes.",
    "recurring_freezes": "The machine stands still for seconds, over and over.",
    "slow_from_start": "One machine is the slow one from the first row on.",
    "slow_gpu": "One machine works longer at each step; its peers idle for that time.",
    "slow_network": "One machine sends and receives slowly.",
    "slow_storage": "One machine waits for its storage.",
    "stall": "One machine's ranks stand still and the rest wait for them.",
    "throttle_bouts": "Thermal or power throttling in bouts.",
    "two_slow": "Two slow machines at once.",
}

CAUSES: dict[str, str] = {
    "compilation": "Graphs are compiled again on every machine.",
    "congestion": "All traffic crosses a crowded fabric.",
    "deadlock": "All ranks wait for each other.",
    "evaluation": "The job evaluates for some minutes.",
    "job_ends": "The job is done; its machines go idle.",
    "load_shift": "The job's batches change: another load for all from now on.",
    "loading_slow": "All machines wait for data.",
    "power_cap": "A cap on power for the whole hall.",
    "restart": "The job starts again; one machine may have been replaced.",
    "storage_slow": "The storage behind all machines is slow.",
    "user_bug": "All ranks exit with the same exception.",
}

NUISANCES: dict[str, str] = {
    "agent_lost": "One machine's rows end, its work does not.",
    "agent_restart": "One machine's rows pause.",
    "broken_metric": "One metric of one machine contradicts all its others.",
    "clock_off": "One machine's rows bear wrong times.",
    "evaluation_agent": "An agent restarts while the job evaluates.",
    "exporter_freeze": "One machine's rows repeat themselves for a while; the job goes on.",
    "hot_aisle": "A row of machines runs warmer.",
    "rank0_writes": "After each checkpoint rank 0 works on and the rest spin.",
    "second_tenant": "A second job shares one host's cores and network.",
    "stuck_gauge": "One metric of one machine does not move.",
    "unit_change": "An exporter's new version counts in another unit.",
    "unlike_roles": "Some machines roll out while the others train.",
    "zero_for_missing": "Zeros stand where a value is unknown.",
}

GREY = frozenset(
    {
        *("busy_processor", "dirty_optics", "flat_clock", "group_slow", "link_flap", "nvlink_lane", "pcie_width"),
        *("recurring_freezes", "slow_from_start", "slow_gpu", "slow_network", "slow_storage", "throttle_bouts", "two_slow"),
    }
)
ENDING = frozenset({"deadlock", "job_ends", "user_bug"})

NEEDS: dict[str, frozenset[str]] = {
    "busy_processor": frozenset({"cpu_usage_ratio"}),
    "dirty_optics": frozenset({"link_errors_per_second", "rdma_xmit_wait_per_second", "cnp_packets_per_second"}),
    "flat_clock": frozenset({"gpu_clock_hertz"}),
    "full_disk": frozenset({"disk_usage_ratio"}),
    "link_flap": frozenset({"link_downs_total"}),
    "memory_leak": frozenset({"memory_usage_ratio"}),
    "nvlink_lane": frozenset({"nvlink_bandwidth_bytes_per_second"}),
    "pcie_width": frozenset({"pcie_link_width", "pcie_bandwidth_bytes_per_second"}),
    "throttle_bouts": frozenset({"gpu_clock_hertz", "gpu_throttle_reasons"}),
}
