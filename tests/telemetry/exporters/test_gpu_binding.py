"""The real nvidia-ml-py against a library with NVML's C interface (stand_in_nvml.c): calls, structures and errors as ctypes has them."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minder.edge.exporters.gpu import GpuExporter
from minder.edge.exporters.reading import Reading

SOURCE = Path(__file__).parent / "stand_in_nvml.c"
COMPILER = shutil.which("cc") or shutil.which("gcc")

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C compiler: apt-get install gcc"),
    pytest.mark.skipif(importlib.util.find_spec("pynvml") is None, reason="nvidia-ml-py is not installed"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of libnvidia-ml.so.1."""
    folder = tmp_path_factory.mktemp("nvml")
    command = [str(COMPILER), "-shared", "-fPIC", "-Wall", "-Werror", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    return folder


@pytest.fixture
def gpu(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., GpuExporter]]:
    opened: list[GpuExporter] = []
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))

    def start(role: str, deadline_s: float = 5.0) -> GpuExporter:
        monkeypatch.setenv("NVML_PLAYS", role)
        opened.append(GpuExporter("m1", "on", deadline_s))
        return opened[-1]

    yield start
    for exporter in opened:
        exporter.close()


def _until(exporter: GpuExporter, test: Callable[[Reading], bool]) -> Reading:
    end_s = time.monotonic() + 20.0
    while time.monotonic() < end_s:
        reading = exporter.read(time.time())
        if test(reading):
            return reading
        time.sleep(0.05)
    raise AssertionError("the GPU reader never said it")


def _values(reading: Reading, device: str) -> dict[str, float]:
    return {name: value for (name, of), value in reading.gauges.items() if of == device}


def test_a_gpu_without_gpm(gpu: Callable[..., GpuExporter]) -> None:
    exporter = gpu("ampere")
    reading = _until(exporter, lambda reading: ("nvlink_bandwidth_bytes_per_second", "gpu0") in reading.gauges)
    values = _values(reading, "gpu0")
    assert values.pop("nvlink_bandwidth_bytes_per_second") > 0  # grows at each look, and looks are not timed
    assert values == pytest.approx(
        {
            "gpu_duty_cycle_ratio": 0.90,
            "gpu_memory_bandwidth_ratio": 0.4,
            "gpu_power_draw_watts": 500.0,
            "gpu_temperature_celsius": 60,
            "gpu_clock_hertz": 1.98e9,
            "gpu_memory_used_ratio": 0.25,
            "gpu_throttle_reasons": 0x48,
            "pcie_bandwidth_bytes_per_second": 1.5e6,
            "pcie_link_width": 16,
        }
    )
    assert reading.counters["gpu_ecc_uncorrectable", "gpu0"] == 2
    assert ("gpu_ecc_uncorrectable", "gpu1") not in reading.counters  # not supported there
    assert reading.counters["gpu_rows_remapped", "gpu1"] == 3
    assert ("gpu_info", {"device": "gpu0", "uuid": "GPU-00000000-aaaa-bbbb-cccc-dddddddddddd", "pci": "0000:19:00"}) in reading.info
    assert exporter.pci_names["0000:ab:00"] == "gpu1"


def test_a_gpu_with_gpm_read_longer_than_samples_that_are_not_given_back_would_last(gpu: Callable[..., GpuExporter]) -> None:
    exporter = gpu("hopper")
    seen = 0
    for _ in range(60):
        reading = _until(exporter, lambda reading: ("gpu_sm_activity_ratio", "gpu1") in reading.gauges)
        seen += 1
    values = _values(reading, "gpu1")
    assert seen == 60
    assert values["gpu_sm_activity_ratio"] == pytest.approx(0.8)
    assert values["gpu_tensor_activity_ratio"] == pytest.approx(0.55)
    assert values["gpu_graphics_activity_ratio"] == pytest.approx(0.97)
    assert values["gpu_memory_bandwidth_ratio"] == pytest.approx(0.3)
    assert values["gpu_fp_activity_ratio"] == pytest.approx(0.2)  # FP32 refused, FP16 given
    assert values["nvlink_bandwidth_bytes_per_second"] == pytest.approx(150 * 2**20)


def test_a_driver_that_knows_the_reasons_by_their_new_name_only(gpu: Callable[..., GpuExporter]) -> None:
    reading = _until(gpu("renamed"), lambda reading: bool(reading.gauges))
    assert _values(reading, "gpu1")["gpu_throttle_reasons"] == 0x48


def test_a_gpu_that_falls_off_the_bus(gpu: Callable[..., GpuExporter]) -> None:
    exporter = gpu("lost")
    reading = _until(exporter, lambda reading: bool(reading.signals))
    assert [(item.kind, item.device, item.data["what"]) for item in reading.signals] == [("kernel", "gpu1", "gpu_lost")]
    reading = _until(exporter, lambda reading: bool(reading.gauges))
    assert "gpu_power_draw_watts" not in _values(reading, "gpu1")
    assert _values(reading, "gpu0")["gpu_power_draw_watts"] == 500.0


def test_a_call_that_never_returns_ends_nothing_but_the_gpus_values(gpu: Callable[..., GpuExporter]) -> None:
    exporter = gpu("hang", deadline_s=1.0)
    _until(exporter, lambda reading: bool(reading.gauges))
    reading = _until(exporter, lambda reading: bool(reading.signals))
    assert [item.data["what"] for item in reading.signals] == ["nvml_timeout"]
    _until(exporter, lambda reading: not reading.gauges)
