"""GPUs through a real child process that finds a made-up NVML: values, gaps, a lost GPU, a hang, no GPU at all."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minder.edge.exporters.gpu import GpuExporter
from minder.edge.exporters.reading import Reading

FAKE = Path(__file__).parent / "fake_nvml"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., GpuExporter]]:
    opened: list[GpuExporter] = []
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{FAKE}:{root}")

    def start(role: str, deadline_s: float = 5.0) -> GpuExporter:
        monkeypatch.setenv("FAKE_NVML", role)
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


def test_every_catalogue_metric_in_base_units(gpu: Callable[..., GpuExporter]) -> None:
    exporter = gpu("plain")
    reading = _until(exporter, lambda reading: bool(reading.gauges))
    values = {name: value for (name, device), value in reading.gauges.items() if device == "gpu2"}
    assert values == pytest.approx(
        {
            "gpu_duty_cycle_ratio": 0.92,
            "gpu_memory_bandwidth_ratio": 0.4,
            "gpu_power_draw_watts": 500.002,
            "gpu_temperature_celsius": 60,
            "gpu_clock_hertz": 1.98e9,
            "gpu_memory_used_ratio": 0.25,
            "gpu_throttle_reasons": 4,
            "pcie_bandwidth_bytes_per_second": 1.5e6,
            "pcie_link_width": 16,
        }
    )
    assert reading.counters["gpu_ecc_uncorrectable", "gpu2"] == 2
    assert reading.counters["gpu_rows_remapped", "gpu2"] == 3
    assert ("gpu_info", {"device": "gpu2", "uuid": "GPU-0002", "pci": "0000:12:00"}) in reading.info
    assert exporter.pci_names["0000:12:00"] == "gpu2"  # as the kernel log names it in an Xid line


def test_activity_comes_from_gpm_where_the_gpu_has_it(gpu: Callable[..., GpuExporter]) -> None:
    reading = _until(gpu("hopper"), lambda reading: ("gpu_sm_activity_ratio", "gpu0") in reading.gauges)
    values = {name: value for (name, device), value in reading.gauges.items() if device == "gpu0"}
    assert values["gpu_sm_activity_ratio"] == pytest.approx(0.8)
    assert values["gpu_tensor_activity_ratio"] == pytest.approx(0.55)
    assert values["gpu_graphics_activity_ratio"] == pytest.approx(0.97)
    assert values["gpu_memory_bandwidth_ratio"] == pytest.approx(0.3)
    assert values["gpu_fp_activity_ratio"] == pytest.approx(0.2)  # FP32 refused, FP16 given
    assert values["nvlink_bandwidth_bytes_per_second"] == pytest.approx(150 * 2**20)
    assert len(reading) < 300


def test_blank_values_are_no_data(gpu: Callable[..., GpuExporter]) -> None:
    reading = _until(gpu("blank"), lambda reading: bool(reading.gauges))
    names = {name for name, _ in reading.gauges}
    assert "gpu_temperature_celsius" in names
    assert not {"gpu_power_draw_watts", "gpu_duty_cycle_ratio"} & names


def test_a_lost_gpu_is_told_once_and_the_others_go_on(gpu: Callable[..., GpuExporter]) -> None:
    exporter = gpu("lost")
    reading = _until(exporter, lambda reading: bool(reading.gauges))
    assert ("gpu_power_draw_watts", "gpu3") not in reading.gauges
    assert ("gpu_power_draw_watts", "gpu4") in reading.gauges
    assert [(item.kind, item.device, item.data["what"]) for item in reading.signals] == [("kernel", "gpu3", "gpu_lost")]
    assert _until(exporter, lambda reading: bool(reading.gauges)).signals == []


def test_a_hang_ends_the_child_and_the_metrics(gpu: Callable[..., GpuExporter]) -> None:
    exporter = gpu("hang", deadline_s=0.5)
    _until(exporter, lambda reading: bool(reading.gauges))
    reading = _until(exporter, lambda reading: bool(reading.signals))
    assert [item.data["what"] for item in reading.signals] == ["nvml_timeout"]
    assert exporter._child is None
    _until(exporter, lambda reading: not reading.gauges)  # the last values do not stay
    assert exporter._child is None  # and no new child storms


def test_no_driver_is_asked_only_once(gpu: Callable[..., GpuExporter], tmp_path: Path) -> None:
    exporter = gpu("absent")
    _until(exporter, lambda reading: exporter._child is None)
    for _ in range(5):
        assert len(exporter.read(time.time())) == 0
        assert exporter._child is None


def test_a_child_that_dies_is_tried_again_later() -> None:
    exporter = GpuExporter("m1", "on", command=[sys.executable, "-c", "import time; time.sleep(0.5)"])
    _until(exporter, lambda reading: exporter._child is None)
    exporter.read(time.time() + 10)
    assert exporter._child is None
    exporter.read(time.time() + 60)
    assert exporter._child is not None
    exporter.close()


def test_off_is_off() -> None:
    assert len(GpuExporter("m1", "off").read(time.time())) == 0
