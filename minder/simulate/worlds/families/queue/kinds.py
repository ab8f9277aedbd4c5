"""The kinds of trouble that this family can draw, each with one sentence, and what must be exported to see it."""

from __future__ import annotations

__all__ = ["CAN_BE_GREY", "CAUSES", "FAULTS", "NUISANCES", "SHOWN_BY"]

FAULTS: dict[str, str] = {
    "busy_processor": "A stray process takes the processors: launches come late, and all peers wait.",
    "dirty_optics": "A transceiver with errors: the port sends again, and its congestion counters stand at a few times its neighbours'.",
    "early_stall": "The machine's ranks hang within the first minutes.",
    "ecc_errors": "Uncorrectable memory errors climb on one GPU, then its process is killed and the job stands.",
    "flat_clock": "The clock stays flat well below its peers', nothing else.",
    "frozen_gauges": "The driver hangs: the machine's gauges freeze to the digit while its peers fall to their waiting level.",
    "full_disk": "The disk fills at a checkpoint, the write does not end and all peers wait.",
    "gpu_lost": "A GPU falls off the bus: its readings end or are 0, and the job stands.",
    "group_silent": "A rack or switch loses its power: its machines are silent minutes before the rest stands.",
    "group_slow": "The machines behind one switch, in one rack or of one stage are slow together.",
    "link_flap": "A link goes down and up: a counter climbs on this machine only, and each time the exchange waits.",
    "machine_dead": "The machine goes down: its rows end and its peers wait.",
    "memory_leak": "Host memory fills up until a rank is killed.",
    "nvlink_lane": "One NVLink lane is out: traffic inside the machine is slower.",
    "pcie_width": "The PCIe link trained down to fewer lanes.",
    "recurring_freezes": "The machine freezes for some seconds, again and again.",
    "slow_from_start": "The machine is slow from the first step.",
    "slow_gpu": "The machine computes more slowly than its peers, which wait for it at every barrier.",
    "slow_network": "The machine's port carries less than its peers'.",
    "slow_storage": "The machine reads and writes slowly: it waits for data, and its peers wait for it.",
    "stall": "The machine's ranks hang in the middle of a step, and all peers wait in the collective.",
    "throttle_bouts": "Throttling that comes and goes.",
    "two_slow": "Two machines are slow at the same time.",
}

CAUSES: dict[str, str] = {
    "compilation": "The job compiles again: GPUs idle and processors are busy everywhere.",
    "congestion": "The fabric is congested for all.",
    "deadlock": "A deadlock in the user's code: all ranks wait for ever.",
    "evaluation": "A long evaluation.",
    "job_ends": "The job ends; its machines idle, and later their agents leave.",
    "load_shift": "Longer or shorter sequences from some step on.",
    "loading_slow": "Data loading is slow for all.",
    "power_cap": "The site caps the power of all machines.",
    "restart": "The job restarts, perhaps with one machine exchanged.",
    "storage_slow": "The shared storage is slow for all: loading and checkpoints.",
    "user_bug": "An exception in the user's code ends all ranks at once.",
}

NUISANCES: dict[str, str] = {
    "agent_lost": "A machine's agent is gone; the machine works on.",
    "agent_restart": "A machine's agent is started again; its rows are missing for a while.",
    "broken_metric": "One family of metrics of one machine shows nonsense while all others of it are well.",
    "clock_off": "A machine's clock is wrong by up to two minutes.",
    "evaluation_agent": "A machine's agent is started again in the middle of an evaluation.",
    "exporter_freeze": "A machine's exporter repeats its last values while the job works on.",
    "hot_aisle": "The machines of one aisle are warmer than the rest, from some time on.",
    "rank0_writes": "Rank 0 writes on after each checkpoint while the others spin.",
    "second_tenant": "Another tenant uses processors, memory and network of one machine; the job does not feel it.",
    "stuck_gauge": "One gauge of one machine stays at one value.",
    "unit_change": "Some machines' exporter counts one metric in another unit from some time on.",
    "unlike_roles": "Trainers and rollout machines do unlike work.",
    "zero_for_missing": "An exporter says 0 where it has no value.",
}

CAN_BE_GREY = frozenset(
    {
        *("busy_processor", "dirty_optics", "flat_clock", "group_slow", "link_flap", "nvlink_lane", "pcie_width"),
        *("recurring_freezes", "slow_from_start", "slow_gpu", "slow_network", "slow_storage", "throttle_bouts", "two_slow"),
    }
)

# Metrics of which one must be exported, or a seed does not choose this fault by itself. None named: any will do.
SHOWN_BY: dict[str, tuple[str, ...]] = {
    "dirty_optics": ("cnp_packets_per_second", "rdma_xmit_wait_per_second", "link_errors_per_second"),
    "flat_clock": ("gpu_clock_hertz",),
    "full_disk": ("disk_usage_ratio",),
    "link_flap": ("link_downs_total",),
    "memory_leak": ("memory_usage_ratio",),
    "nvlink_lane": ("nvlink_bandwidth_bytes_per_second",),
    "pcie_width": ("pcie_link_width", "pcie_bandwidth_bytes_per_second"),
    "throttle_bouts": ("gpu_clock_hertz", "gpu_throttle_reasons"),
    "slow_network": ("rdma_xmit_wait_per_second", "cnp_packets_per_second"),
    "busy_processor": ("cpu_usage_ratio",),
}
