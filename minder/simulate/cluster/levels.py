"""What each metric reads in each state of a machine, as a share of what it reads on average while the job trains.

Sources. Ranges of the averages: eight-GPU training machines as published cluster traces and public telemetry of H100 nodes show them
(docs/simulator.md says which parameter was measured on what). Noise and standing spread: the same. The states: a rank that waits in a
collective spins at full duty with little power and no traffic (ByteRobust section 3.2; Minder section 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = ["EXTRA_METRICS", "GROUPS", "METRICS", "STATES", "TRAINING_GROUPS", "MetricModel", "State", "level_table"]

STATES = ("compute", "sync", "bubble", "spin", "checkpoint", "evaluation", "dark", "gone", "load")
TRAINING_STATES = 3  # the first: phases of an iteration


class State(NamedTuple):
    """Factors of the training average. dark: the processes live and do nothing; gone: they have ended; load: they start."""

    compute: float = 1.0
    sync: float = 1.0
    bubble: float = 1.0
    spin: float = 1.0
    checkpoint: float = 1.0
    evaluation: float = 1.0
    dark: float = 1.0
    gone: float = 1.0
    load: float = 1.0


@dataclass(frozen=True, slots=True)
class MetricModel:
    """base: training average, drawn per job. noise: relative; memory_s: for how long it remembers. spread: between machines, relative.
    high: the largest possible value. step: the sensor's resolution. averaged: a counter's rate over the scrape interval."""

    name: str
    group: str
    base: tuple[float, float]
    state: State
    noise: float
    memory_s: float
    spread: float
    high: float
    step: float
    averaged: bool = False


_FLAT = State()
_PACKETS = State(1.0, 1.3, 0.8, 0.6, 0.7, 0.5, 0.4, 0.3, 0.5)

METRICS: tuple[MetricModel, ...] = (
    MetricModel("cpu_usage_ratio", "cpu", (0.15, 0.4), State(1.02, 1.0, 0.95, 1.0, 1.15, 0.85, 0.12, 0.05, 1.3), 0.05, 2, 0.06, 1.0, 1e-5, True),
    MetricModel("memory_usage_ratio", "memory", (0.3, 0.65), State(gone=0.35, load=0.8), 0.003, 20, 0.06, 1.0, 1e-5),
    MetricModel("disk_usage_ratio", "disk", (0.2, 0.5), _FLAT, 0.0004, 60, 0.15, 1.0, 1e-5),
    MetricModel("gpu_duty_cycle_ratio", "duty", (0.7, 0.995), State(1.02, 1.0, 0.9, 1.3, 0.3, 0.95, 0.12, 0.01, 0.35), 0.006, 1, 0.005, 1.0, 1e-5),
    MetricModel("gpu_power_draw_watts", "power", (420, 640), State(1.12, 0.8, 0.62, 0.46, 0.4, 0.85, 0.22, 0.15, 0.3), 0.02, 1, 0.02, 720, 1e-2),
    MetricModel("gpu_temperature_celsius", "temperature", (48, 66), _FLAT, 0.006, 15, 0.06, 110, 1e-2),
    MetricModel("gpu_sm_activity_ratio", "compute", (0.5, 0.8), State(1.15, 0.6, 0.35, 0.27, 0.13, 0.85, 0.06, 0, 0.1), 0.02, 1, 0.012, 1.0, 1e-5),
    MetricModel("gpu_tensor_activity_ratio", "compute", (0.25, 0.5), State(1.2, 0.45, 0.25, 0.11, 0.1, 0.8, 0.04, 0, 0.05), 0.03, 1, 0.015, 1.0, 1e-5),
    MetricModel("gpu_graphics_activity_ratio", "duty", (0.8, 0.97), State(1.02, 1.0, 0.9, 1.02, 0.28, 0.95, 0.1, 0.005, 0.3), 0.012, 1, 0.008, 1.0, 1e-5),
    MetricModel("gpu_clock_hertz", "clock", (1.3e9, 1.75e9), State(0.995, 1.01, 1.02, 1.01, 1.02, 1.0, 1.0, 0.97, 1.0), 0.01, 2, 0.012, 1.98e9, 1e4),
    MetricModel("gpu_memory_used_ratio", "gpu_memory", (0.55, 0.88), State(gone=0.02, load=0.5), 0.003, 10, 0.03, 1.0, 1e-5),
    MetricModel("gpu_memory_bandwidth_ratio", "compute", (0.22, 0.48), State(1.15, 0.6, 0.3, 0.07, 0.12, 0.8, 0.04, 0, 0.08), 0.03, 1, 0.02, 1.0, 1e-5),
    MetricModel("nvlink_bandwidth_bytes_per_second", "fabric", (1.3e11, 2.6e11), State(1.08, 0.85, 0.4, 0.07, 0.12, 0.8, 0.03, 0, 0.05), 0.03, 1, 0.02, 9e11, 1e5),
    MetricModel("pcie_bandwidth_bytes_per_second", "pcie", (1.5e10, 3.2e10), State(1.05, 0.95, 0.7, 0.35, 1.8, 0.5, 0.1, 0.01, 1.5), 0.04, 1, 0.02, 1.2e11, 1e4),
    MetricModel("rdma_throughput_bytes_per_second", "fabric", (6e10, 2e11), State(0.7, 1.7, 0.7, 0.08, 0.1, 0.4, 0.03, 0.005, 0.1), 0.04, 1, 0.025, 4e11, 1e5, True),
    MetricModel("tcp_throughput_bytes_per_second", "tcp", (2.5e7, 9e7), State(1, 1, 1, 1, 12, 0.9, 0.4, 0.3, 8), 0.25, 3, 0.1, 2.5e10, 1e1, True),
    MetricModel("pfc_tx_packets_per_second", "congestion", (25, 90), _PACKETS, 0.7, 4, 0.25, 1e9, 1e-3, True),
    MetricModel("ecn_packets_per_second", "congestion", (140, 420), _PACKETS, 0.5, 4, 0.2, 1e9, 1e-3, True),
    MetricModel("cnp_packets_per_second", "congestion", (90, 320), _PACKETS, 0.55, 4, 0.2, 1e9, 1e-3, True),
)  # fmt: skip

# Of sites with richer exporters. Counters and the job's own heartbeat are added by `counters.py`.
EXTRA_METRICS: tuple[MetricModel, ...] = (
    MetricModel("gpu_fp_activity_ratio", "compute", (0.03, 0.12), State(1.1, 0.7, 0.5, 0.15, 0.1, 0.8, 0.04, 0, 0.05), 0.05, 1, 0.03, 1.0, 1e-5),
    MetricModel("cpu_throttled_ratio", "throttle", (0.002, 0.02), State(dark=0.1, gone=0.0, load=2.0), 0.5, 5, 0.3, 1.0, 1e-5, True),
    MetricModel("rdma_xmit_wait_per_second", "congestion", (1e4, 2e6), _PACKETS, 0.8, 4, 0.3, 1e12, 1.0, True),
    MetricModel("tcp_retransmits_per_second", "retransmits", (0.05, 0.6), _FLAT, 0.9, 4, 0.3, 1e6, 1e-3, True),
)  # fmt: skip

GROUPS = tuple(dict.fromkeys(model.group for model in METRICS))
TRAINING_GROUPS = ("duty", "power", "compute", "fabric", "pcie")


def level_table(models: tuple[MetricModel, ...], share_P: np.ndarray) -> np.ndarray:
    """Factors (states, metrics); the phases of an iteration are scaled so that their mean over an iteration is 1.

    share_P: which share of an iteration each of its phases takes.
    """
    table_SK = np.array([model.state for model in models], dtype=np.float64).T.copy()
    table_SK[:TRAINING_STATES] /= (share_P[:, None] * table_SK[:TRAINING_STATES]).sum(axis=0)
    return table_SK
