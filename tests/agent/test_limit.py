"""No machine exports more series than it may, and says how many it kept to itself."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from minder.edge.agent.exposition import render
from minder.edge.agent.limit import LEFT_OUT, MOST_SERIES, bound
from minder.edge.exporters.reading import Reading


def machine(gpus: int = 8, interfaces: int = 2, jobs: int = 1) -> Reading:
    """An 8-GPU machine's size: 20 metrics a GPU, 12 an interface, 30 of its own."""
    reading = Reading()
    for index in range(gpus):
        for metric in range(20):
            reading.gauge(f"gpu_metric{metric}", 1.0, f"gpu{index}")
    for index in range(interfaces):
        for metric in range(12):
            reading.counter(f"link_metric{metric}", 1.0, f"veth{index}")
    for metric in range(30):
        reading.gauge(f"own_metric{metric}", 1.0)
    reading.info = [("job_info", {"training_job": f"job-{index}"}) for index in range(jobs)]
    return reading


def exported(reading: Reading) -> int:
    return sum(len(family.samples) for family in text_string_to_metric_families(render(reading).decode()))


def test_a_usual_machine_keeps_all_of_it() -> None:
    kept = bound(machine())
    assert len(kept) == len(machine()) + 1
    assert kept.gauges[LEFT_OUT, None] == 0


def test_hundreds_of_interfaces_cost_their_own_tail_and_are_counted() -> None:
    whole = machine(interfaces=300)
    kept = bound(whole)
    assert exported(kept) <= MOST_SERIES
    assert kept.gauges[LEFT_OUT, None] == len(whole) - (len(kept) - 1) > 3000
    assert {place for place in whole.gauges if place not in kept.gauges} == set()  # GPUs and the machine's own
    devices = sorted({device for name, device in kept.counters if name == "link_metric0"}, key=lambda device: int(str(device)[4:]))
    assert devices == [f"veth{index}" for index in range(len(devices))] and len(devices) > 20


def test_every_metric_keeps_the_same_devices_and_a_crowd_of_jobs_is_bounded_too() -> None:
    kept = bound(machine(gpus=100, interfaces=100, jobs=1000))
    by_metric = {name: {device for other, device in kept.gauges if other == name} for name, _ in kept.gauges if name.startswith("gpu")}
    assert len(set(map(frozenset, by_metric.values()))) == 1
    assert exported(kept) <= MOST_SERIES
    assert all((f"own_metric{metric}", None) in kept.gauges for metric in range(30))
