"""Which physical kind each metric is evidence of, and on which scale its values are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minder.diagnose.detectors.traits import HIGH, LOW

__all__ = ["COMMON_KINDS", "KINDS", "Series", "SeriesTable", "series_of"]

KINDS = (
    "throughput", "utilisation", "tensor", "power", "temperature", "clock", "memory_bandwidth", "nvlink", "pcie", "network", "congestion",
    "errors", "processor", "host_memory",
)  # fmt: skip
_ABSURD = 1e15  # no metric has such values
COMMON_KINDS = ("utilisation", "tensor", "power", "nvlink", "network", "congestion")  # whose common move says what the job is doing


@dataclass(frozen=True, slots=True)
class Series:
    """kind: of KINDS. logarithmic: log(value + offset), so that a standing difference is a factor; else value / offset.
    floor: the smallest spread believed, in these units."""

    kind: str
    logarithmic: bool
    offset: float
    floor: float


def _log(kind: str, offset: float, floor: float) -> Series:
    return Series(kind, True, offset, floor)


def _linear(kind: str, offset: float, floor: float) -> Series:
    return Series(kind, False, offset, floor)


_SERIES: dict[str, Series] = {
    "nccl_throughput_bytes_per_second": _log("throughput", 1e8, 0.03),
    "job_busy_ratio": _linear("throughput", 1.0, 0.05),
    "gpu_duty_cycle_ratio": _log("utilisation", 0.05, 0.02),
    "gpu_graphics_activity_ratio": _log("utilisation", 0.05, 0.02),
    "gpu_sm_activity_ratio": _log("tensor", 0.05, 0.02),
    "gpu_tensor_activity_ratio": _log("tensor", 0.03, 0.02),
    "gpu_fp_activity_ratio": _log("tensor", 0.03, 0.02),
    "gpu_power_draw_watts": _log("power", 30.0, 0.015),
    "gpu_temperature_celsius": _linear("temperature", 1.0, 1.0),
    "gpu_clock_hertz": _log("clock", 1e7, 0.006),
    "gpu_throttle_reasons": _log("clock", 1.0, 0.3),
    "gpu_memory_bandwidth_ratio": _log("memory_bandwidth", 0.03, 0.02),
    "nvlink_bandwidth_bytes_per_second": _log("nvlink", 1e8, 0.03),
    "pcie_bandwidth_bytes_per_second": _log("pcie", 1e8, 0.03),
    "pcie_link_width": _log("pcie", 0.1, 0.05),
    "rdma_throughput_bytes_per_second": _log("network", 1e8, 0.03),
    "tcp_throughput_bytes_per_second": _log("network", 1e6, 0.15),
    "pfc_tx_packets_per_second": _log("congestion", 10.0, 0.2),
    "ecn_packets_per_second": _log("congestion", 10.0, 0.2),
    "cnp_packets_per_second": _log("congestion", 10.0, 0.2),
    "rdma_xmit_wait_per_second": _log("congestion", 10.0, 0.2),
    "tcp_retransmits_per_second": _log("congestion", 1.0, 0.3),
    "link_errors_per_second": _log("errors", 1.0, 0.2),
    "link_downs_total": _linear("errors", 1.0, 0.2),
    "gpu_ecc_uncorrectable_total": _linear("errors", 1.0, 0.2),
    "gpu_rows_remapped_total": _linear("errors", 1.0, 0.2),
    "cpu_usage_ratio": _log("processor", 0.03, 0.04),
    "cpu_throttled_ratio": _linear("processor", 1.0, 0.05),
    "processes_stopped": _linear("processor", 1.0, 0.1),
    "job_run_delay_ratio": _linear("processor", 1.0, 0.05),
    "memory_usage_ratio": _linear("host_memory", 1.0, 0.01),
    "disk_usage_ratio": _linear("host_memory", 1.0, 0.01),
    "gpu_memory_used_ratio": _linear("host_memory", 1.0, 0.02),
}


def series_of(name: str) -> Series | None:
    """The series of a metric (also of its smallest or largest device); None for one that no feature reads."""
    return _SERIES.get(name.removesuffix(LOW).removesuffix(HIGH))


class SeriesTable:
    """The series of K read metrics as arrays, those on a logarithmic scale first. columns: their places in the window's own metrics.

    kind_K: place of each one's kind in KINDS. by_kind: the K places kind by kind; begins: where each kind that there is begins in it.
    """

    def __init__(self, metrics: Sequence[str]) -> None:
        read = [(k, series) for k, name in enumerate(metrics) if (series := series_of(name)) is not None]
        found = sorted(read, key=lambda item: not item[1].logarithmic)
        self.columns = np.array([k for k, _ in found], dtype=np.int64)
        self.names = tuple(metrics[k] for k, _ in found)
        self.kind_K = np.array([KINDS.index(series.kind) for _, series in found], dtype=np.int64)
        self.members = [np.flatnonzero(self.kind_K == p) for p in range(len(KINDS))]
        self.by_kind = np.argsort(self.kind_K, kind="stable")
        self.there_P, self.begins = np.unique(self.kind_K[self.by_kind], return_index=True)
        self.logarithms = sum(series.logarithmic for _, series in found)
        self.offset_K1 = np.array([[series.offset] for _, series in found], dtype=np.float32).reshape(-1, 1)
        self.floor_K1 = np.array([[series.floor] for _, series in found], dtype=np.float32).reshape(-1, 1)

    def scale(self, values_KM: np.ndarray) -> np.ndarray:
        """The series' values on their scales (a new array of 32 bits), NaN where there is no data or where a value cannot be one.

        values_KM: of all metrics of the window.
        """
        with np.errstate(over="ignore"):
            out_KM = values_KM[self.columns].astype(np.float32, copy=False)
        absurd_KM = ~(np.abs(out_KM) < _ABSURD)  # infinite, too
        out_KM[absurd_KM] = np.nan
        first_KM, last_KM = out_KM[: self.logarithms], out_KM[self.logarithms :]
        np.maximum(first_KM, 0.0, out=first_KM)
        first_KM += self.offset_K1[: self.logarithms]
        np.log(first_KM, out=first_KM)
        last_KM /= self.offset_K1[self.logarithms :]
        return out_KM

    def largest(self, size_KM: np.ndarray) -> np.ndarray:
        """(P, M): the largest value among the series of each kind, NaN where there is none; NaN counts nothing."""
        out_PM = np.full((len(KINDS), size_KM.shape[1]), np.nan, dtype=np.float32)
        for p in self.there_P.tolist():
            places = self.members[p]
            out_PM[p] = size_KM[places[0]] if len(places) == 1 else np.fmax.reduce(size_KM[places], axis=0)
        return out_PM

    def unscale(self, k: int, value: float) -> float:
        """One scaled value of series k in its metric's base unit."""
        if k < self.logarithms:
            return float(np.exp(min(value, 80.0)) - self.offset_K1[k, 0])
        return float(value * self.offset_K1[k, 0])
