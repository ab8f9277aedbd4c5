"""Typical levels by regime, spreads and links of every metric, and what the exporters of a site give.

Sources, restated as own round numbers. Levels of power, temperature, duty cycle and processor: the fleet distributions of AcmeTrace
(InternLM, CC BY 4.0: training GPUs at 300 to 440 W of 400 on A100, memory hotter than core, processors mostly below 25 %), and published
figures of Hopper jobs (530 to 560 W in data-parallel training, 120 W with a context and no work, 70 W without). Spread of eight GPUs
that do the same: 2 % of power, 7 to 12 degrees between slots. Congestion: pause frames and marks as tens a second, surges of ten times.
Legend: P regimes, K metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

__all__ = ["REGIMES", "TABLE", "Level", "exported", "moved", "rows_of"]

Link = Literal["log", "logit", "linear", "count", "state"]

# The first nine stand in the table. busy: at work while the others wait. stall: waiting for data or a lock, all of them.
REGIMES = ("start", "warmup", "training", "evaluation", "checkpoint", "spin", "receive", "idle", "gone", "busy", "stall")


@dataclass(frozen=True, slots=True)
class Level:
    """One metric. by: who exports it (dcgm, nvml, vendor; Network, Host, TCP, Steps, Job). group: c compute, n congestion, h host.

    own, slot, noise: standard deviations of machines, of devices in a machine and in time, in units of the link. quantum: what the
    exporter rounds to, in the metric's unit. levels: by regime, in the metric's unit. traffic: bytes that follow the steps of the job.
    """

    name: str
    by: str
    link: Link
    group: str
    own: float
    slot: float
    noise: float
    quantum: float
    levels: tuple[float, ...]
    traffic: bool = False


_T = True  # traffic
TABLE: tuple[Level, ...] = (
    # own, slot, noise, quantum, levels at: start, warmup, training, evaluation, checkpoint, spin, receive, idle, gone
    Level("gpu_duty_cycle_ratio", "dnv", "logit", "c", 0.15, 0.2, 0.25, 0.01, (0.08, 0.75, 0.96, 0.85, 0.3, 0.99, 0.94, 0.03, 0.0)),
    Level("gpu_sm_activity_ratio", "d", "logit", "c", 0.06, 0.04, 0.08, 1e-4, (0.03, 0.42, 0.62, 0.46, 0.1, 0.22, 0.14, 0.01, 0.0)),
    Level("gpu_tensor_activity_ratio", "d", "logit", "c", 0.05, 0.04, 0.08, 1e-4, (0.01, 0.2, 0.36, 0.27, 0.02, 0.01, 0.01, 0.002, 0.0)),
    Level("gpu_graphics_activity_ratio", "d", "logit", "c", 0.1, 0.1, 0.2, 1e-4, (0.08, 0.72, 0.94, 0.82, 0.3, 0.98, 0.93, 0.03, 0.0)),
    Level("gpu_fp_activity_ratio", "d", "logit", "c", 0.05, 0.04, 0.08, 1e-4, (0.01, 0.07, 0.13, 0.1, 0.01, 0.01, 0.01, 0.001, 0.0)),
    Level("gpu_power_draw_watts", "dnv", "log", "c", 0.02, 0.02, 0.025, 0.1, (130, 380, 540, 440, 190, 265, 230, 120, 85)),
    Level("gpu_temperature_celsius", "dnv", "linear", "c", 1.8, 3.0, 0.4, 1.0, (36, 48, 58, 53, 42, 45, 43, 36, 31)),
    Level("gpu_clock_hertz", "dnv", "log", "c", 0.006, 0.005, 0.006, 15e6, (1.95e9, 1.75e9, 1.62e9, 1.7e9, *[1.95e9] * 3, *[1.98e9] * 2)),
    Level("gpu_memory_used_ratio", "dnv", "logit", "c", 0.06, 0.03, 0.008, 1e-4, (0.12, 0.6, 0.78, 0.74, 0.78, 0.78, 0.78, 0.78, 0.01)),
    Level("gpu_memory_bandwidth_ratio", "dn", "logit", "c", 0.06, 0.05, 0.08, 1e-3, (0.03, 0.22, 0.36, 0.28, 0.05, 0.03, 0.03, 0.01, 0.0)),
    Level("nvlink_bandwidth_bytes_per_second", "d", "log", "c", 0.03, 0.03, 0.07, 1, (1e8, 4e10, 9e10, 5e10, 1e9, 2e9, 1e9, 1e6, 1e5), _T),
    Level("pcie_bandwidth_bytes_per_second", "dn", "log", "h", 0.05, 0.05, 0.14, 1.0, (3e9, 3e9, 4e9, 3e9, 8e9, 5e8, 5e8, 1e8, 2e7), _T),
    Level("pcie_link_width", "dn", "state", "h", 0, 0, 0, 1.0, (16,) * 9),
    Level("gpu_throttle_reasons", "dn", "state", "c", 0, 0, 0, 1.0, (0,) * 9),
    Level("gpu_ecc_uncorrectable_total", "dn", "state", "c", 0, 0, 0, 1.0, (0,) * 9),
    Level("gpu_rows_remapped_total", "d", "state", "c", 0, 0, 0, 1.0, (0,) * 9),
    Level("rdma_throughput_bytes_per_second", "N", "log", "c", 0.03, 0, 0.08, 1.0, (1e8, 8e9, 1.6e10, 5e9, 1e9, 2e8, 2e8, 1e6, 1e5), _T),
    Level("pfc_tx_packets_per_second", "N", "count", "n", 0.8, 0, 0.9, 0, (0.5, 8, 20, 6, 30, 0.3, 0.3, 0.1, 0.05)),
    Level("ecn_packets_per_second", "N", "count", "n", 0.5, 0, 0.7, 0, (2, 30, 80, 20, 60, 1, 1, 0.3, 0.1)),
    Level("cnp_packets_per_second", "N", "count", "n", 0.5, 0, 0.7, 0, (1, 20, 50, 15, 40, 0.7, 0.7, 0.2, 0.1)),
    Level("rdma_xmit_wait_per_second", "N", "count", "n", 0.4, 0, 0.5, 0, (1e3, 1e5, 3e5, 8e4, 5e4, 3e3, 3e3, 200, 50)),
    Level("link_errors_per_second", "N", "count", "n", 0.8, 0, 0.9, 0, (0.01,) * 9),
    Level("link_downs_total", "N", "state", "n", 0, 0, 0, 1.0, (0,) * 9),
    Level("cpu_usage_ratio", "H", "logit", "h", 0.18, 0, 0.2, 1e-4, (0.22, 0.18, 0.12, 0.15, 0.2, 0.13, 0.12, 0.09, 0.03)),
    Level("memory_usage_ratio", "H", "logit", "h", 0.1, 0, 0.015, 1e-4, (0.12, 0.28, 0.32, 0.32, 0.38, 0.32, 0.32, 0.32, 0.08)),
    Level("disk_usage_ratio", "H", "logit", "h", 0.35, 0, 0.002, 1e-4, (0.42,) * 9),
    Level("cpu_throttled_ratio", "H", "logit", "h", 0.4, 0, 0.5, 1e-4, (0.004, 0.004, 0.003, 0.004, 0.006, 0.003, 0.003, 0.001, 0.001)),
    Level("processes_stopped", "H", "state", "h", 0, 0, 0, 1.0, (0,) * 9),
    Level("tcp_throughput_bytes_per_second", "T", "log", "h", 0.25, 0, 0.4, 1.0, (3e8, 2e7, 6e6, 2e7, 9e8, 2e6, 2e6, 2e6, 1e6)),
    Level("tcp_receive_queue_bytes", "T", "log", "h", 0.4, 0, 0.6, 1.0, (4e4, 2e4, 1e4, 1e4, 3e4, 5e3, 5e3, 5e3, 500)),
    Level("tcp_send_queue_bytes", "T", "log", "h", 0.4, 0, 0.6, 1.0, (3e4, 2e4, 1.2e4, 1e4, 8e4, 4e3, 4e3, 4e3, 500)),
    Level("tcp_retransmits_per_second", "T", "count", "h", 0.5, 0, 0.8, 0, (2, 0.8, 0.4, 0.5, 4, 0.2, 0.2, 0.2, 0.1)),
    Level("tcp_round_trip_seconds", "T", "log", "h", 0.12, 0, 0.1, 1e-6, (3e-4, 2.4e-4, 2e-4, 2e-4, 4e-4, 1.6e-4, 1.6e-4, 1.5e-4, 1.4e-4)),
    Level("step_seconds", "S", "state", "c", 0, 0, 0, 0, (0,) * 9),
    Level("steps_total", "S", "state", "c", 0, 0, 0, 1.0, (0,) * 9),
    Level("job_cpu_ratio", "J", "log", "h", 0.08, 0, 0.12, 1e-3, (20, 14, 10, 12, 16, 10.5, 10, 3, 0.01)),
    Level("job_busy_ratio", "J", "logit", "h", 0.1, 0, 0.12, 1e-3, (0.8, 0.85, 0.9, 0.85, 0.6, 0.97, 0.95, 0.15, 0.001)),
    Level("job_memory_bytes", "J", "log", "h", 0.03, 0, 0.01, 1.0, (1e11, 2.5e11, 3e11, 3e11, 3.6e11, 3e11, 3e11, 3e11, 1e6)),
)  # fmt: skip

_ALWAYS = ("gpu_duty_cycle_ratio", "gpu_power_draw_watts")
_CHANCE = {"N": 0.7, "H": 0.65, "T": 0.3, "S": 0.25, "J": 0.15}


def exported(rng: np.random.Generator) -> tuple[Level, ...]:
    """What one site exports: GPUs by one of three exporters, and of each further kind of metrics a part or nothing."""
    has = {str(rng.choice(list("dnv"), p=[0.55, 0.3, 0.15])), *(kind for kind, chance in _CHANCE.items() if rng.random() < chance)}
    kept = rng.random(len(TABLE)) < 0.82
    return tuple(level for level, keep in zip(TABLE, kept, strict=True) if has & set(level.by) and (keep or level.name in _ALWAYS))


def rows_of(levels: tuple[Level, ...], scores_K: np.ndarray) -> np.ndarray:
    """(P, K): a job's typical level in each regime, the table's moved by the job's own scores."""
    table_PK = np.array([level.levels for level in levels], dtype=np.float64).T
    traffic_K = np.array([level.traffic for level in levels])
    network_K = np.array([level.group == "n" for level in levels])
    busy_K = np.where(traffic_K | network_K, table_PK[REGIMES.index("idle")], table_PK[REGIMES.index("training")])
    stall_K = 0.5 * (table_PK[REGIMES.index("spin")] + table_PK[REGIMES.index("idle")])
    rows_PK = np.vstack([table_PK, busy_K, stall_K])
    for k, level in enumerate(levels):
        if level.link != "state":
            rows_PK[:, k] = moved(rows_PK[:, k], scores_K[k], level.link)
    return rows_PK


def moved(values: np.ndarray, score: np.ndarray | float, link: Link) -> np.ndarray:
    """Values moved by a score: a factor exp(score), a shift of the log odds, or a shift, as the link is."""
    if link in ("log", "count"):
        return np.asarray(values * np.exp(score))
    if link == "logit":
        clipped = np.clip(values, 0.0005, 0.9995)
        odds = clipped / (1.0 - clipped) * np.exp(score)
        return np.asarray(np.where(values <= 0.0005, values, odds / (1.0 + odds)))
    return np.asarray(values + score) if link == "linear" else values
