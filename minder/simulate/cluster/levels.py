"""What each metric reads in each state of a machine, as a share of what it reads on average while the job trains.

Sources. Ranges of the averages: eight-GPU training machines as published cluster traces and public telemetry of H100 nodes show them
(docs/simulator.md says which parameter was measured on what). Noise and standing spread: the same. The states: a rank that waits in a
collective spins at full duty with little power and no traffic (ByteRobust, arXiv 2509.16293; Minder, arXiv 2411.01791).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

__all__ = ["EXTRA_METRICS", "METRICS", "STATES", "TRAINING_GROUPS", "MetricModel", "State", "level_table"]

STATES = ("compute", "sync", "bubble", "host", "spin", "checkpoint", "evaluation", "dark", "gone", "load")
TRAINING_STATES = 4  # the first: phases of an iteration


class State(NamedTuple):
    """Factors of the training average. host: the GPUs wait for the host (data, offloaded optimiser). dark: the processes live and do
    nothing; gone: they have ended; load: they start."""

    compute: float = 1.0
    sync: float = 1.0
    bubble: float = 1.0
    host: float = 1.0
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


_READS: dict[str, State] = {
    "cpu_usage_ratio": State(1.02, 1.0, 0.95, 1.5, 1.0, 1.15, 0.85, 0.12, 0.05, 1.3),
    "cpu_throttled_ratio": State(dark=0.1, gone=0.0, load=2.0),
    "memory_usage_ratio": State(gone=0.35, load=0.8),
    "gpu_duty_cycle_ratio": State(1.02, 1.0, 0.9, 0.08, 1.3, 0.3, 0.95, 0.12, 0.01, 0.35),
    "gpu_power_draw_watts": State(1.12, 0.8, 0.62, 0.24, 0.46, 0.4, 0.85, 0.22, 0.15, 0.3),
    "gpu_sm_activity_ratio": State(1.15, 0.6, 0.35, 0.05, 0.27, 0.13, 0.85, 0.06, 0.0, 0.1),
    "gpu_tensor_activity_ratio": State(1.2, 0.45, 0.25, 0.03, 0.11, 0.1, 0.8, 0.04, 0.0, 0.05),
    "gpu_fp_activity_ratio": State(1.1, 0.7, 0.5, 0.05, 0.15, 0.1, 0.8, 0.04, 0.0, 0.05),
    "gpu_graphics_activity_ratio": State(1.02, 1.0, 0.9, 0.08, 1.02, 0.28, 0.95, 0.1, 0.005, 0.3),
    "gpu_clock_hertz": State(0.995, 1.01, 1.02, 1.0, 1.01, 1.02, 1.0, 1.0, 0.97, 1.0),
    "gpu_memory_used_ratio": State(gone=0.02, load=0.5),
    "gpu_memory_bandwidth_ratio": State(1.15, 0.6, 0.3, 0.03, 0.07, 0.12, 0.8, 0.04, 0.0, 0.08),
    "nvlink_bandwidth_bytes_per_second": State(1.08, 0.85, 0.4, 0.03, 0.07, 0.12, 0.8, 0.03, 0.0, 0.05),
    "pcie_bandwidth_bytes_per_second": State(1.05, 0.95, 0.7, 1.6, 0.35, 1.8, 0.5, 0.1, 0.01, 1.5),
    "rdma_throughput_bytes_per_second": State(0.7, 1.7, 0.7, 0.05, 0.08, 0.1, 0.4, 0.03, 0.005, 0.1),
    "tcp_throughput_bytes_per_second": State(checkpoint=12.0, evaluation=0.9, dark=0.4, gone=0.3, load=8.0),
}
_PACKETS = State(1.0, 1.3, 0.8, 0.5, 0.6, 0.7, 0.5, 0.4, 0.3, 0.5)


def _model(name: str, group: str, base: tuple[float, float], noise: tuple[float, float, float], sensor: tuple[float, float]) -> MetricModel:
    """noise: size, memory, standing spread; sensor: largest value, resolution. Counters' rates are those of hosts and networks."""
    state = _PACKETS if group == "congestion" else _READS.get(name, State())
    averaged = group in ("cpu", "throttle", "tcp", "retransmits", "congestion") or name.startswith("rdma")
    return MetricModel(name, group, base, state, *noise, *sensor, averaged)


METRICS: tuple[MetricModel, ...] = (
    _model("cpu_usage_ratio", "cpu", (0.15, 0.4), (0.05, 2, 0.06), (1.0, 1e-5)),
    _model("memory_usage_ratio", "memory", (0.3, 0.65), (0.003, 20, 0.06), (1.0, 1e-5)),
    _model("disk_usage_ratio", "disk", (0.2, 0.5), (0.0004, 60, 0.15), (1.0, 1e-5)),
    _model("gpu_duty_cycle_ratio", "duty", (0.7, 1.0), (0.006, 1, 0.005), (1.0, 1e-5)),
    _model("gpu_power_draw_watts", "power", (380, 680), (0.02, 1, 0.02), (720, 1e-2)),
    _model("gpu_temperature_celsius", "temperature", (46, 68), (0.004, 15, 0.07), (110, 1e-2)),
    _model("gpu_sm_activity_ratio", "compute", (0.45, 0.88), (0.02, 1, 0.01), (1.0, 1e-5)),
    _model("gpu_tensor_activity_ratio", "compute", (0.18, 0.58), (0.03, 1, 0.012), (1.0, 1e-5)),
    _model("gpu_graphics_activity_ratio", "duty", (0.8, 0.97), (0.012, 1, 0.008), (1.0, 1e-5)),
    _model("gpu_clock_hertz", "clock", (1.3e9, 1.75e9), (0.01, 2, 0.012), (1.98e9, 1e4)),
    _model("gpu_memory_used_ratio", "gpu_memory", (0.55, 0.88), (0.003, 10, 0.03), (1.0, 1e-5)),
    _model("gpu_memory_bandwidth_ratio", "compute", (0.22, 0.48), (0.03, 1, 0.02), (1.0, 1e-5)),
    _model("nvlink_bandwidth_bytes_per_second", "fabric", (2e10, 2.8e11), (0.03, 1, 0.02), (9e11, 1e5)),
    _model("pcie_bandwidth_bytes_per_second", "pcie", (1e9, 3.5e10), (0.04, 1, 0.02), (1.2e11, 1e4)),
    _model("rdma_throughput_bytes_per_second", "fabric", (1e10, 2e11), (0.04, 1, 0.025), (4e11, 1e5)),
    _model("tcp_throughput_bytes_per_second", "tcp", (2.5e7, 9e7), (0.25, 3, 0.1), (2.5e10, 10.0)),
    _model("pfc_tx_packets_per_second", "congestion", (25, 90), (0.7, 4, 0.25), (1e9, 1e-3)),
    _model("ecn_packets_per_second", "congestion", (140, 420), (0.5, 4, 0.2), (1e9, 1e-3)),
    _model("cnp_packets_per_second", "congestion", (90, 320), (0.55, 4, 0.2), (1e9, 1e-3)),
)

# Of sites with richer exporters. Counters and the job's own heartbeat are added by `heartbeat.py`.
EXTRA_METRICS: tuple[MetricModel, ...] = (
    _model("gpu_fp_activity_ratio", "compute", (0.03, 0.12), (0.05, 1, 0.03), (1.0, 1e-5)),
    _model("cpu_throttled_ratio", "throttle", (0.002, 0.02), (0.5, 5, 0.3), (1.0, 1e-5)),
    _model("rdma_xmit_wait_per_second", "congestion", (1e4, 2e6), (0.8, 4, 0.3), (1e12, 1.0)),
    _model("tcp_retransmits_per_second", "retransmits", (0.05, 0.6), (0.9, 4, 0.3), (1e6, 1e-3)),
)

TRAINING_GROUPS = ("duty", "power", "compute", "fabric", "pcie")


def level_table(models: tuple[MetricModel, ...], share_P: np.ndarray, contrast: float = 1.0) -> np.ndarray:
    """Factors (states, metrics); the phases of an iteration are scaled so that their mean over an iteration is 1.

    share_P: which share of an iteration each of its phases takes. contrast: 1 where the phases follow each other, less where
    communication hides behind computation.
    """
    table_SK = np.array([model.state for model in models], dtype=np.float64).T.copy()
    table_SK[:TRAINING_STATES] **= contrast
    table_SK[:TRAINING_STATES] /= (share_P[:, None] * table_SK[:TRAINING_STATES]).sum(axis=0)
    return table_SK
