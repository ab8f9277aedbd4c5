"""What NVML says of each GPU, in the catalogue's names and units. Runs only in the GPU child: any call may hang for ever.

A value that the library refuses, or gives as blank, is left out; the library is a parameter, so that it can be a fake.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable
from typing import Any

__all__ = ["Device", "open_devices"]

_SLOW_EVERY_S = 10.0  # PCIe throughput blocks 20 ms a call; the others hardly ever change
_KIB = 1024
_NVLINK_TX, _NVLINK_RX, _ALL_LINKS = 138, 139, 0xFFFFFFFF
# GPM metric ids (NVML_GPM_METRIC_*): percent, but the two NVLink ones in MiB/s.
_GRAPHICS, _SM, _TENSOR, _DRAM, _FP32, _FP16, _NVLINK_RX_RATE, _NVLINK_TX_RATE = 1, 2, 5, 10, 12, 13, 60, 61
_GPM_IDS = (_GRAPHICS, _SM, _TENSOR, _DRAM, _FP32, _FP16, _NVLINK_RX_RATE, _NVLINK_TX_RATE)

Pair = tuple[str, float]


class Device:
    """One GPU. `read` gives {"values": {...}, "counters": {...}, "lost": bool}; slow values are repeated for up to 10 s."""

    def __init__(self, nvml: Any, handle: Any, index: int) -> None:
        self._nvml = nvml
        self._handle = handle
        self.index = index
        self.uuid = _text(self._ask(nvml.nvmlDeviceGetUUID)) or f"index-{index}"
        self.pci = _text(getattr(self._ask(nvml.nvmlDeviceGetPciInfo), "busId", None))
        self._slow: dict[str, float] = {}
        self._counters: dict[str, float] = {}
        self._slow_at_s = float("-inf")
        self._nvlink: tuple[float, int] | None = None
        self._gpm = _Gpm(nvml, handle) if self._supports_gpm() else None
        self._lost = False

    def read(self, now_s: float | None = None) -> dict[str, Any]:
        now_s = time.monotonic() if now_s is None else now_s
        self._lost = False
        values = dict(pair for read in (self._load, self._power, self._memory, self._throttle, self._nvlink_rate) for pair in read(now_s))
        if self._gpm is not None:
            values.update(self._gpm.read())
        if now_s - self._slow_at_s >= _SLOW_EVERY_S:
            self._slow = dict(self._read_slow())
            self._counters = dict(self._read_counters())
            self._slow_at_s = now_s
        return {"values": {**self._slow, **values}, "counters": self._counters, "lost": self._lost}

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """None where NVML has no answer for this GPU."""
        try:
            return function(self._handle, *arguments)
        except self._nvml.NVMLError as error:
            lost = type(error).__name__ == "NVMLError_GpuIsLost" or getattr(error, "value", None) == 15
            self._lost = getattr(self, "_lost", False) or lost
            return None

    def _load(self, now_s: float) -> Iterable[Pair]:
        use = self._ask(self._nvml.nvmlDeviceGetUtilizationRates)
        if use is not None:
            yield from _ratio("gpu_duty_cycle_ratio", use.gpu, 100)
            yield from _ratio("gpu_memory_bandwidth_ratio", use.memory, 100)

    def _power(self, now_s: float) -> Iterable[Pair]:
        yield from _number("gpu_power_draw_watts", self._ask(self._nvml.nvmlDeviceGetPowerUsage), 1e-3, 5e6)
        yield from _number("gpu_temperature_celsius", self._ask(self._nvml.nvmlDeviceGetTemperature, 0), 1.0, 150)
        yield from _number("gpu_clock_hertz", self._ask(self._nvml.nvmlDeviceGetClockInfo, 1), 1e6, 1e4)

    def _memory(self, now_s: float) -> Iterable[Pair]:
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo)
        if memory is not None and memory.total:
            yield from _ratio("gpu_memory_used_ratio", memory.used, memory.total)

    def _throttle(self, now_s: float) -> Iterable[Pair]:
        """Under the new name and the old: a driver, and a version of nvidia-ml-py, may know one of them only."""
        for what in ("Event", "Throttle"):
            function = getattr(self._nvml, f"nvmlDeviceGetCurrentClocks{what}Reasons", None)
            reasons = self._ask(function) if function is not None else None
            if reasons is not None:
                yield from _number("gpu_throttle_reasons", reasons, 1.0, 1 << 62)
                return

    def _nvlink_rate(self, now_s: float) -> Iterable[Pair]:
        """From the GPU's own byte counters, where GPM does not give the rate."""
        if self._gpm is not None:
            return
        fields = self._ask(self._nvml.nvmlDeviceGetFieldValues, [(_NVLINK_TX, _ALL_LINKS), (_NVLINK_RX, _ALL_LINKS)])
        if fields is None or any(field.nvmlReturn != 0 for field in fields):
            return
        total = sum(int(field.value.ullVal) for field in fields) * _KIB
        if self._nvlink is not None and now_s > self._nvlink[0] and total >= self._nvlink[1]:
            yield "nvlink_bandwidth_bytes_per_second", (total - self._nvlink[1]) / (now_s - self._nvlink[0])
        self._nvlink = (now_s, total)

    def _read_slow(self) -> Iterable[Pair]:
        traffic = [self._ask(self._nvml.nvmlDeviceGetPcieThroughput, way) for way in (0, 1)]
        if all(value is not None and value < 1 << 31 for value in traffic):
            yield "pcie_bandwidth_bytes_per_second", sum(traffic) * 1e3
        yield from _number("pcie_link_width", self._ask(self._nvml.nvmlDeviceGetCurrPcieLinkWidth), 1.0, 64)

    def _read_counters(self) -> Iterable[Pair]:
        uncorrected, volatile = 1, 0
        yield from _number("gpu_ecc_uncorrectable", self._ask(self._nvml.nvmlDeviceGetTotalEccErrors, uncorrected, volatile), 1.0, 1 << 62)
        rows = self._ask(self._nvml.nvmlDeviceGetRemappedRows)
        if rows is not None:
            yield from _number("gpu_rows_remapped", rows[0] + rows[1], 1.0, 1 << 31)

    def _supports_gpm(self) -> bool:
        query = getattr(self._nvml, "nvmlGpmQueryDeviceSupport", None)
        support = self._ask(query) if query is not None else None
        return bool(getattr(support, "isSupportedDevice", 0))


class _Gpm:
    """Activity of a Hopper or newer GPU between two of its samples (NVML's GPM)."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle
        self._before = self._sample()

    def read(self) -> dict[str, float]:
        after = self._sample()
        before, self._before = self._before, after
        if before is None or after is None:
            return {}
        request = self._nvml.c_nvmlGpmMetricsGet_t()
        request.version = self._nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_GPM_IDS)
        request.sample1, request.sample2 = before, after
        for index, identity in enumerate(_GPM_IDS):
            request.metrics[index].metricId = identity
        try:
            self._nvml.nvmlGpmMetricsGet(request)
        except self._nvml.NVMLError:
            return {}
        finally:
            self._free(before)
        found = {item.metricId: float(item.value) for item in request.metrics[: len(_GPM_IDS)] if item.nvmlReturn == 0}
        return _gpm_values({key: value for key, value in found.items() if value == value})

    def _sample(self) -> Any:
        try:
            sample = self._nvml.nvmlGpmSampleAlloc()
            self._nvml.nvmlGpmSampleGet(self._handle, sample)
        except (self._nvml.NVMLError, ctypes.ArgumentError):
            return None
        return sample

    def _free(self, sample: Any) -> None:
        try:
            self._nvml.nvmlGpmSampleFree(sample)
        except self._nvml.NVMLError:
            pass


def _gpm_values(found: dict[int, float]) -> dict[str, float]:
    names = {
        _SM: "gpu_sm_activity_ratio",
        _TENSOR: "gpu_tensor_activity_ratio",
        _GRAPHICS: "gpu_graphics_activity_ratio",
        _DRAM: "gpu_memory_bandwidth_ratio",
    }
    values = {names[key]: percent / 100 for key, percent in found.items() if key in names and 0 <= percent <= 100.5}
    floating = [found[key] for key in (_FP32, _FP16) if key in found and 0 <= found[key] <= 100.5]
    if floating:
        values["gpu_fp_activity_ratio"] = max(floating) / 100
    traffic = [found[key] for key in (_NVLINK_RX_RATE, _NVLINK_TX_RATE) if key in found and found[key] < 1e9]
    if traffic:
        values["nvlink_bandwidth_bytes_per_second"] = sum(traffic) * _KIB * _KIB
    return {name: min(value, 1.0) if name.endswith("_ratio") else value for name, value in values.items()}


def open_devices(nvml: Any) -> list[Device]:
    """All GPUs in NVML's order. A GPU that cannot even be opened is left out. Raises the library's errors of its start."""
    nvml.nvmlInit()
    found: list[Device] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError:
            continue
        found.append(Device(nvml, handle, index))
    return found


def _ratio(name: str, part: Any, whole: Any) -> Iterable[Pair]:
    if part is not None and 0 <= part <= whole:
        yield name, part / whole


def _number(name: str, value: Any, scale: float, most: float) -> Iterable[Pair]:
    """most: in NVML's unit; above it (0xFFFFFFFF, 2^63 and their like) NVML means "no value"."""
    if value is not None and 0 <= value < most:
        yield name, value * scale


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
