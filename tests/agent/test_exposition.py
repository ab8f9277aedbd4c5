"""The text that Prometheus reads."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from minder.edge.agent.exposition import hide, render
from minder.edge.exporters.reading import Reading


@pytest.fixture
def reading() -> Reading:
    reading = Reading()
    reading.gauge("cpu_usage_ratio", 0.5)
    reading.gauge("gpu_power_draw_watts", 500.0, "gpu0")
    reading.gauge("gpu_power_draw_watts", 510.0, "gpu1")
    reading.counter("tcp_receive_bytes", 7, "eth0")
    reading.counter("tcp_retransmits", 3)
    reading.counter("steps", 9)
    reading.info.append(("job_info", {"training_job": 'a "b"'}))
    return reading


def _samples(reading: Reading) -> dict[tuple[str, str], float]:
    families = text_string_to_metric_families(render(reading).decode())
    return {(item.name, ",".join(item.labels.values())): item.value for family in families for item in family.samples}


def test_names_labels_and_types(reading: Reading) -> None:
    assert _samples(reading) == {
        ("minder_cpu_usage_ratio", ""): 0.5,
        ("minder_gpu_power_draw_watts", "gpu0"): 500.0,
        ("minder_gpu_power_draw_watts", "gpu1"): 510.0,
        ("minder_tcp_receive_bytes_total", "eth0"): 7.0,
        ("minder_tcp_retransmits_total", ""): 3.0,
        ("minder_steps_total", ""): 9.0,
        ("minder_job_info", 'a "b"'): 1.0,
    }
    assert b"# TYPE minder_steps_total counter" in render(reading)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 9223372036854775794, 2.0**64])
def test_blank_values_never_enter(value: float | None) -> None:
    reading = Reading()
    reading.gauge("gpu_power_draw_watts", value)
    reading.counter("steps", value)
    assert len(reading) == 0
    assert render(reading) == b""


@pytest.mark.parametrize(
    ("name", "gone"),
    [
        ("cpu_usage_ratio", "minder_cpu_usage_ratio"),
        ("tcp_retransmits_per_second", "minder_tcp_retransmits_total"),
        ("steps_total", "minder_steps_total"),
        ("tcp_throughput_bytes_per_second", "minder_tcp_receive_bytes_total"),
    ],
)
def test_hidden_is_gone_by_its_catalogue_name(reading: Reading, name: str, gone: str) -> None:
    before = {series for series, _ in _samples(reading)}
    after = {series for series, _ in _samples(hide(reading, {name}))}
    assert before - after == {gone}
