"""A reading as Prometheus text."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import generate_latest

from minder.edge.exporters.reading import Reading, Series

__all__ = ["hide", "render"]


def render(reading: Reading) -> bytes:
    """Gauges as `minder_<name>`, counters as `minder_<name>_total`, one `device` label where there is a device."""
    return bytes(generate_latest(_Collected(reading)))


def hide(reading: Reading, hidden: Collection[str]) -> Reading:
    """The reading without the named metrics (canonical names, counters also with `_total` or as their rate)."""
    if not hidden:
        return reading
    kept = Reading(info=[item for item in reading.info if item[0] not in hidden], signals=reading.signals)
    kept.gauges = {series: value for series, value in reading.gauges.items() if series[0] not in hidden}
    kept.counters = {series: value for series, value in reading.counters.items() if not _names(series[0]) & set(hidden)}
    return kept


def _names(counter: str) -> set[str]:
    return {counter, f"{counter}_total", f"{counter}_per_second", *_RATES.get(counter, ())}


_RATES = {
    "nccl_bytes": ("nccl_throughput_bytes_per_second",),
    "tcp_receive_bytes": ("tcp_throughput_bytes_per_second",),
    "tcp_transmit_bytes": ("tcp_throughput_bytes_per_second",),
    "rdma_receive_bytes": ("rdma_throughput_bytes_per_second",),
    "rdma_transmit_bytes": ("rdma_throughput_bytes_per_second",),
}


class _Collected(CollectorRegistry):
    """A registry that holds one reading and nothing else."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(auto_describe=False)
        self._reading = reading

    def collect(self) -> Iterable[Metric]:
        yield from _families(self._reading.gauges, GaugeMetricFamily)
        yield from _families(self._reading.counters, CounterMetricFamily)
        by_name: dict[str, GaugeMetricFamily] = {}
        for name, labels in self._reading.info:
            family = by_name.setdefault(name, GaugeMetricFamily(f"minder_{name}", "", labels=sorted(labels)))
            family.add_metric([labels[label] for label in sorted(labels)], 1.0)
        yield from by_name.values()


def _families(values: dict[Series, float], kind: type[GaugeMetricFamily] | type[CounterMetricFamily]) -> Iterable[Metric]:
    """A name either has devices or has not; where both came, the devices win."""
    by_name: dict[str, dict[str | None, float]] = {}
    for (name, device), value in sorted(values.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        by_name.setdefault(name, {})[device] = value
    for name, by_device in by_name.items():
        devices = [device for device in by_device if device is not None]
        family = kind(f"minder_{name}", "", labels=["device"] if devices else [])
        for device, value in by_device.items():
            if device is not None or not devices:
                family.add_metric([device] if device is not None else [], value)
        yield family
