"""A page of NVIDIA's DCGM exporter, from its text to samples.

dcgm_exporter.prom is our own: its names, types, help texts, labels and blanks are those that the exporter's README and etc/*.csv document
(github.com/NVIDIA/dcgm-exporter, Apache-2.0); its numbers are made up.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.ingest.sources.exposition import parse_exposition
from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.translate import RawSeries, Translator
from minder.model.telemetry import Sample

PAGE = parse_exposition((Path(__file__).parent / "dcgm_exporter.prom").read_text())


def samples(label: str = "Hostname", prefix: str = "") -> dict[str | None, Sample]:
    """By device. prefix: in front of the labels that clash with a Prometheus' own for the pod that it scrapes."""
    clash = ("container", "namespace", "pod")
    found = [
        RawSeries(
            name, {"instance": "10.0.0.7:9400"} | {prefix * (key in clash) + key: text for key, text in labels.items()}, ((1.0, value),)
        )
        for name, labels, value in PAGE
    ]
    given = Translator(load_mapping("dcgm"), MachineMap(label, known=["node-7"])).translate(found)
    assert {sample.machine for sample in given} == {"node-7"}
    return {sample.device: sample for sample in given}


def test_a_gpu_s_metrics_have_their_units_and_the_machine_is_the_host_not_the_pod() -> None:
    assert samples()["gpu0"].values == pytest.approx(
        {
            "gpu_duty_cycle_ratio": 0.97,
            "gpu_graphics_activity_ratio": 0.971203,
            "gpu_tensor_activity_ratio": 0.4121,
            "gpu_memory_bandwidth_ratio": 0.38,
            "gpu_power_draw_watts": 612.407,
            "gpu_temperature_celsius": 61.0,
            "gpu_clock_hertz": 1.98e9,
            "gpu_memory_used_ratio": 59500 / 80000,
            "pcie_bandwidth_bytes_per_second": 2e9,
            "gpu_rows_remapped_total": 3.0,
            "gpu_xid_code": 0.0,
        }
    )


def test_what_the_exporter_does_not_know_is_no_data() -> None:
    """GPU 1's temperature and power are blanks (64-bit and floating point); an idle one at 0 % is data."""
    values = samples()["gpu1"].values
    assert values["gpu_duty_cycle_ratio"] == 0.0
    assert {"gpu_temperature_celsius", "gpu_power_draw_watts", "gpu_memory_used_ratio"} & set(values) == set()


def test_instances_of_one_gpu_are_one_device() -> None:
    assert samples()["gpu1"].values["gpu_graphics_activity_ratio"] == pytest.approx(0.3)


def test_labels_that_prometheus_renamed_change_nothing() -> None:
    plain, renamed = samples(), samples(prefix="exported_")
    assert renamed == plain
