"""Stands in for nvidia-ml-py in the GPU child of the tests. FAKE_NVML chooses what it plays:
absent, hang, lost, blank, plain (the default), hopper."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

_ROLE = os.environ.get("FAKE_NVML", "plain")
_BLANK = 9223372036854775794
NVML_GPM_METRICS_GET_VERSION = 1
_calls = {"power": 0}


class NVMLError(Exception):
    value = 999


class NVMLError_LibraryNotFound(NVMLError):
    value = 12


class NVMLError_GpuIsLost(NVMLError):
    value = 15


class NVMLError_NotSupported(NVMLError):
    value = 3


def nvmlInit() -> None:
    if _ROLE == "absent":
        raise NVMLError_LibraryNotFound


def nvmlDeviceGetCount() -> int:
    return 8


def nvmlDeviceGetHandleByIndex(index: int) -> int:
    return index


def nvmlDeviceGetUUID(handle: int) -> str:
    return f"GPU-{handle:04d}"


def nvmlDeviceGetPciInfo(handle: int) -> Any:
    return SimpleNamespace(busId=f"00000000:{0x10 + handle:02X}:00.0".encode())


def nvmlDeviceGetUtilizationRates(handle: int) -> Any:
    return SimpleNamespace(gpu=_BLANK if _ROLE == "blank" else 90 + handle, memory=40)


def nvmlDeviceGetPowerUsage(handle: int) -> int:
    _calls["power"] += 1
    if _ROLE == "hang" and _calls["power"] > 16:
        time.sleep(600)
    if _ROLE == "lost" and handle == 3:
        raise NVMLError_GpuIsLost
    return _BLANK if _ROLE == "blank" else 500_000 + handle


def nvmlDeviceGetTemperature(handle: int, sensor: int) -> int:
    return 60


def nvmlDeviceGetClockInfo(handle: int, kind: int) -> int:
    assert kind == 1
    return 1980


def nvmlDeviceGetMemoryInfo(handle: int) -> Any:
    return SimpleNamespace(total=80 << 30, used=20 << 30)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle: int) -> int:
    return 4


def nvmlDeviceGetFieldValues(handle: int, fields: list[tuple[int, int]]) -> list[Any]:
    raise NVMLError_NotSupported


def nvmlDeviceGetPcieThroughput(handle: int, way: int) -> int:
    return 1000 if way == 0 else 500


def nvmlDeviceGetCurrPcieLinkWidth(handle: int) -> int:
    return 16


def nvmlDeviceGetTotalEccErrors(handle: int, kind: int, counter: int) -> int:
    assert (kind, counter) == (1, 0)
    return 2


def nvmlDeviceGetRemappedRows(handle: int) -> tuple[int, int, int, int]:
    return (1, 2, 0, 0)


def nvmlGpmQueryDeviceSupport(handle: int) -> Any:
    return SimpleNamespace(isSupportedDevice=int(_ROLE == "hopper"))


def nvmlGpmSampleAlloc() -> Any:
    return SimpleNamespace()


def nvmlGpmSampleGet(handle: int, sample: Any) -> None:
    sample.handle = handle


def nvmlGpmSampleFree(sample: Any) -> None:
    pass


class c_nvmlGpmMetricsGet_t:
    def __init__(self) -> None:
        self.metrics = [SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(300)]


def nvmlGpmMetricsGet(request: Any) -> None:
    values = {1: 97.0, 2: 80.0, 5: 55.0, 10: 30.0, 12: 10.0, 13: 20.0, 60: 100.0, 61: 50.0}
    for item in request.metrics[: request.numMetrics]:
        item.value = values[item.metricId]
        item.nvmlReturn = 3 if item.metricId == 12 else 0
