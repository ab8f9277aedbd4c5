"""What telemetry says outright: a sticky Xid gauge, and what a Prometheus says of its scrapes."""

from __future__ import annotations

from minder.ingest.sources.identity import MachineMap
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.spoken import SpokenMetrics, SpokenSource
from minder.ingest.sources.translate import RawSeries, Translator
from minder.ingest.windows import Aligner
from minder.model.metrics import is_spoken
from minder.model.telemetry import Sample


def codes(*values: float, device: str = "gpu0") -> list[int]:
    """The codes that are said when a GPU's gauge takes these values one after the other."""
    metrics = SpokenMetrics()
    samples = [Sample(float(t), "m1", {"gpu_xid_code": value}, device) for t, value in enumerate(values)]
    return [signal.data["code"] for sample in samples for signal in metrics.read(sample)]


def test_only_a_change_from_a_known_code_to_another_speaks() -> None:
    assert codes(79.0, 79.0) == []  # the first value seen
    assert codes(0.0, 0.0, 79.0, 79.0) == [79]
    assert codes(79.0, 0.0) == []  # the exporter was started again
    assert codes(31.0, 79.0, 0.0, 79.0) == [79, 79]


def scrapes(rows: list[dict[str, float]]) -> list[str]:
    metrics = SpokenMetrics()
    samples = [Sample(float(t), "m1", row, "dcgm-exporter") for t, row in enumerate(rows)]
    return [signal.data["state"] for sample in samples for signal in metrics.read(sample)]


def test_scrapes_that_change_speak_once() -> None:
    usual = {"scrape_up": 1.0, "scrape_samples": 900.0, "scrape_seconds": 0.05}
    assert scrapes([usual] * 20) == []
    assert scrapes([*[usual] * 10, *[{"scrape_up": 0.0, "scrape_samples": 0.0}] * 5]) == ["down"]
    assert scrapes([*[usual] * 10, *[usual | {"scrape_samples": 500.0}] * 5]) == ["series_lost"]
    assert scrapes([*[usual] * 10, *[usual | {"scrape_seconds": 8.0}] * 5]) == ["slow"]
    assert scrapes([{"scrape_up": 0.0}] * 5) == []  # never seen otherwise


def raw(name: str, value: float, **labels: str) -> RawSeries:
    return RawSeries(name, labels, ((10.0, value),))


def test_a_prometheus_own_series_belong_to_targets_that_gave_a_metric() -> None:
    translator = Translator(load_mapping("dcgm+node"), MachineMap(label="host"))
    target = {"instance": "10.0.0.1:9400", "job": "dcgm", "host": "m1"}
    series = [
        raw("DCGM_FI_DEV_GPU_TEMP", 50.0, gpu="0", **target),
        raw("DCGM_FI_DEV_XID_ERRORS", 79.0, gpu="0", **target),
        raw("up", 1.0, instance="10.0.0.9:9090", job="prometheus"),  # of no machine: no error
    ]
    first = translator.translate(series)
    assert {name for sample in first for name in sample.values} == {"gpu_temperature_celsius", "gpu_xid_code"}
    second = translator.translate(
        [RawSeries("up", target, ((20.0, 0.0),)), RawSeries("up", {"instance": "x:1", "job": "p"}, ((20.0, 1.0),))]
    )
    assert [(sample.machine, sample.device, dict(sample.values)) for sample in second] == [("m1", "dcgm", {"scrape_up": 0.0})]


def test_a_target_that_does_not_answer_is_not_heard() -> None:
    aligner = Aligner(["m1"], interval_s=1.0)
    aligner.push([Sample(float(t), "m1", {"gpu_power_draw_watts": 400.0, "gpu_xid_code": 0.0}, "gpu0") for t in range(5)])
    aligner.push([Sample(float(t), "m1", {"scrape_up": 0.0}, "dcgm") for t in range(5, 40)])
    window = aligner.pop(41.0)
    assert window is not None
    assert bool(window.present_TM[3, 0]) and not window.present_TM[-5:, 0].any()
    assert not any(is_spoken(name) for name in window.metrics)


def test_a_source_hands_its_samples_on_and_keeps_what_they_say() -> None:
    class Source:
        def collect(self, now_s: float) -> list[Sample]:
            return [Sample(now_s, "m1", {"gpu_xid_code": 79.0 if now_s > 1 else 0.0}, "gpu0")]

        def close(self) -> None: ...

    source = SpokenSource(Source())
    assert [len(source.collect(t)) for t in (1.0, 2.0)] == [1, 1]
    assert [(signal.kind, signal.device, signal.data["code"]) for signal in source.drain()] == [("xid", "gpu0", 79)]
    assert source.drain() == []
