"""What each metric shows in each phase of a job's life: a table, and how one job and one machine differ from it.

Legend: P phases, K metrics, M machines.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

__all__ = ["METRICS", "NOISE", "Phase", "levels", "personalities"]


class Phase(IntEnum):
    """What a machine is doing. COMPUTE and EXCHANGE are the two halves of a training step; TRAIN stands for their mixture."""

    IDLE = 0
    START = 1
    COMPILE = 2
    WARM = 3
    COMPUTE = 4
    EXCHANGE = 5
    WAIT = 6
    STARVED = 7
    EVALUATE = 8
    SAVE = 9
    STUCK = 10
    GENERATE = 11
    TRAIN = 12


# Metric: level by phase in the order above (without TRAIN), unit of the level, spread between jobs, between machines, between samples.
_ROWS: dict[str, tuple[tuple[float, ...], float, float, float, float]] = {
    "cpu_usage_ratio": ((0.03, 0.2, 0.5, 0.16, 0.15, 0.13, 0.11, 0.22, 0.16, 0.24, 0.04, 0.2), 1.0, 0.25, 0.06, 0.08),
    "memory_usage_ratio": ((0.18, 0.3, 0.45, 0.5, 0.5, 0.5, 0.5, 0.51, 0.51, 0.58, 0.5, 0.45), 1.0, 0.15, 0.03, 0.004),
    "disk_usage_ratio": ((0.4,) * 12, 1.0, 0.0, 0.35, 0.0),
    "gpu_duty_cycle_ratio": ((0.0, 0.05, 0.1, 0.86, 0.99, 0.98, 1.0, 0.25, 0.92, 0.12, 0.0, 0.94), 1.0, 0.02, 0.004, 0.01),
    "gpu_sm_activity_ratio": ((0.0, 0.02, 0.05, 0.5, 0.84, 0.36, 0.16, 0.1, 0.6, 0.03, 0.0, 0.46), 1.0, 0.12, 0.015, 0.025),
    "gpu_tensor_activity_ratio": ((0.0, 0.0, 0.01, 0.24, 0.48, 0.06, 0.002, 0.03, 0.3, 0.002, 0.0, 0.13), 1.0, 0.2, 0.02, 0.03),
    "gpu_graphics_activity_ratio": ((0.0, 0.05, 0.1, 0.84, 0.98, 0.97, 0.99, 0.24, 0.9, 0.1, 0.0, 0.92), 1.0, 0.02, 0.004, 0.01),
    "gpu_fp_activity_ratio": ((0.0, 0.0, 0.01, 0.1, 0.18, 0.05, 0.001, 0.02, 0.12, 0.01, 0.0, 0.1), 1.0, 0.3, 0.03, 0.04),
    "gpu_power_draw_watts": ((0.13, 0.16, 0.19, 0.55, 0.84, 0.52, 0.31, 0.22, 0.62, 0.17, 0.14, 0.56), 1.0, 0.06, 0.035, 0.02),
    "gpu_temperature_celsius": ((33.0, 34.0, 36.0, 52.0, 63.0, 58.0, 45.0, 40.0, 56.0, 38.0, 34.0, 54.0), 1.0, 0.04, 0.05, 0.004),
    "gpu_clock_hertz": ((0.3, 0.7, 0.9, 1.0, 0.97, 1.0, 1.0, 1.0, 0.99, 1.0, 1.0, 0.98), 1.0, 0.01, 0.006, 0.002),
    "gpu_memory_used_ratio": ((0.01, 0.1, 0.3, 0.8, 0.83, 0.83, 0.83, 0.83, 0.78, 0.83, 0.83, 0.7), 1.0, 0.08, 0.01, 0.0),
    "gpu_memory_bandwidth_ratio": ((0.0, 0.01, 0.02, 0.3, 0.44, 0.22, 0.03, 0.05, 0.3, 0.02, 0.0, 0.7), 1.0, 0.15, 0.015, 0.025),
    "nvlink_bandwidth_bytes_per_second": ((0.0, 0.0, 0.0, 0.3, 0.5, 0.6, 0.01, 0.03, 0.2, 0.0, 0.0, 0.2), 2e11, 0.5, 0.02, 0.04),
    "pcie_bandwidth_bytes_per_second": ((0.002, 0.05, 0.05, 0.2, 0.22, 0.3, 0.02, 0.15, 0.25, 0.3, 0.002, 0.1), 2e10, 0.4, 0.04, 0.06),
    "rdma_throughput_bytes_per_second": ((0.0, 0.01, 0.001, 0.3, 0.1, 0.8, 0.001, 0.02, 0.03, 0.01, 0.0, 0.02), 4e10, 0.4, 0.02, 0.04),
    "tcp_throughput_bytes_per_second": ((0.001, 0.4, 0.02, 0.1, 0.06, 0.05, 0.003, 0.03, 0.2, 0.9, 0.001, 0.05), 1e9, 0.5, 0.1, 0.2),
    "pfc_tx_packets_per_second": ((0.0, 0.0, 0.0, 0.5, 0.2, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 1.0, 1.2, 0.5, 0.7),
    "ecn_packets_per_second": ((0.0, 0.1, 0.0, 20.0, 8.0, 70.0, 0.1, 0.5, 1.0, 0.5, 0.0, 1.0), 1.0, 1.0, 0.3, 0.35),
    "cnp_packets_per_second": ((0.0, 0.1, 0.0, 12.0, 5.0, 40.0, 0.1, 0.3, 0.6, 0.3, 0.0, 0.6), 1.0, 1.0, 0.3, 0.35),
    "rdma_xmit_wait_per_second": ((0.0, 0.1, 0.0, 30.0, 10.0, 120.0, 0.5, 1.0, 2.0, 1.0, 0.0, 2.0), 1e3, 0.8, 0.25, 0.3),
    "link_errors_per_second": ((0.0,) * 12, 1.0, 0.0, 0.0, 0.0),
    "link_downs_total": ((0.0,) * 12, 1.0, 0.0, 0.0, 0.0),
    "gpu_ecc_uncorrectable_total": ((0.0,) * 12, 1.0, 0.0, 0.0, 0.0),
    "gpu_rows_remapped_total": ((0.0,) * 12, 1.0, 0.0, 0.0, 0.0),
    "gpu_throttle_reasons": ((1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0), 1.0, 0.0, 0.0, 0.0),
    "pcie_link_width": ((16.0,) * 12, 1.0, 0.0, 0.0, 0.0),
    "tcp_receive_queue_bytes": ((10.0, 4e3, 2e2, 8e2, 5e2, 5e2, 3e2, 3e3, 2e3, 1e3, 6e3, 5e2), 1.0, 0.5, 0.3, 0.6),
    "tcp_send_queue_bytes": ((10.0, 3e3, 1e2, 9e2, 6e2, 7e2, 2e2, 4e2, 1e3, 2e4, 5e2, 6e2), 1.0, 0.5, 0.3, 0.6),
    "tcp_retransmits_per_second": ((0.05, 0.8, 0.1, 0.5, 0.3, 0.4, 0.1, 0.3, 0.6, 1.5, 0.05, 0.3), 1.0, 0.5, 0.3, 0.7),
    "tcp_round_trip_seconds": ((1.5e-4, 4e-4, 2e-4, 3e-4, 2.5e-4, 2.6e-4, 2e-4, 3e-4, 3e-4, 8e-4, 2e-4, 2.5e-4), 1.0, 0.3, 0.1, 0.2),
}  # fmt: skip
_STEADY = frozenset({"gpu_memory_used_ratio", "gpu_clock_hertz", "gpu_temperature_celsius", "memory_usage_ratio"})  # alike in all phases
METRICS: tuple[str, ...] = tuple(_ROWS)
NOISE: dict[str, float] = {name: row[4] for name, row in _ROWS.items()}


def levels(rng: np.random.Generator, tdp_w: float, nominal_hz: float) -> np.ndarray:
    """(P, K) levels in base units for one job: the table, and what is particular about this job."""
    scale = {"gpu_power_draw_watts": tdp_w, "gpu_clock_hertz": nominal_hz}
    table_PK = np.empty((len(Phase) - 1, len(METRICS)))
    for k, (name, (by_phase, unit, job, _, _)) in enumerate(_ROWS.items()):
        whole, each_P = rng.standard_normal(), rng.standard_normal(len(by_phase)).clip(-2, 2)
        steady = name in _STEADY
        ceiling = 1.0 if name.endswith("_ratio") else np.inf
        table_PK[:, k] = np.minimum(
            np.array(by_phase) * scale.get(name, unit) * np.exp(job * (0.8 * whole + (0.0 if steady else 0.3) * each_P)), ceiling
        )
    return table_PK


def personalities(rng: np.random.Generator, machines: int, stage_M: np.ndarray, uneven: float) -> np.ndarray:
    """(M, K) factors: no two machines are alike, and stages carry unlike parts of the model."""
    spread_K = np.array([row[3] for row in _ROWS.values()])
    heavy_MK = np.clip(rng.standard_t(5, (machines, len(METRICS))), -3, 3)
    stage_SK = rng.standard_normal((int(stage_M.max()) + 1, len(METRICS)))
    own = np.exp(spread_K * heavy_MK * (1 + uneven))
    own[:, METRICS.index("disk_usage_ratio")].clip(0.2, 2.2, out=own[:, METRICS.index("disk_usage_ratio")])
    return np.asarray(own * np.exp(1.2 * np.minimum(spread_K, 0.05) * stage_SK[stage_M] * (stage_M.max() > 0)))
