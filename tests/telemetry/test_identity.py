"""A series and its machine: spellings, ports, and exporters of which a machine has several."""

from __future__ import annotations

import pytest

from minder.ingest.sources.identity import Join, MachineMap
from minder.ingest.sources.mapping import load_mapping
from minder.ingest.sources.translate import RawSeries, Translator
from minder.model.errors import IdentityError

BY_NODENAME = Join("node_uname_info", (("instance", "instance"),), "nodename")


@pytest.mark.parametrize(
    ("label", "value", "machine"),
    [
        ("Hostname", "gpu-1", "GPU-1"),
        ("instance", "[FD00::1]:9400", "fd00::1"),
        ("instance", "fd00::1", "fd00::1"),
        ("instance", "[fd00::1]", "fd00::1"),
        ("instance", "10.0.0.7:9400", "10.0.0.7"),
        ("Hostname", "gpu-2", None),
        ("Hostname", "twin", None),  # TWIN and Twin are two machines
        ("Hostname", "Twin", "Twin"),
    ],
)
def test_a_machine_is_called_as_the_job_spells_it(label: str, value: str, machine: str | None) -> None:
    known = MachineMap(label, known=("GPU-1", "fd00::1", "10.0.0.7", "TWIN", "Twin"))
    assert known.resolve({label: value}) == machine


def test_a_port_decides_where_machines_share_an_address_and_counts_for_nothing_elsewhere() -> None:
    machines = MachineMap("Hostname", joins=(BY_NODENAME,))
    rows = (("203.0.113.5:9101", "n1"), ("203.0.113.5:9102", "n2"), ("10.0.0.3:9100", "n3"))
    machines.learn(("node_uname_info", {"instance": instance, "nodename": name}, 1.0) for instance, name in rows)
    assert [machines.resolve({"instance": instance}) for instance, _ in rows] == ["n1", "n2", "n3"]
    assert machines.resolve({"instance": "10.0.0.3:9400"}) == "n3"
    with pytest.raises(IdentityError):
        machines.resolve({"instance": "203.0.113.5:9400"})


def test_two_exporters_of_one_machine_may_have_half_of_its_devices_each() -> None:
    def scrape(port: int, gpu: int, time_s: float) -> list[RawSeries]:
        labels = {"job": "dcgm", "instance": f"10.0.0.1:{port}"}
        return [
            RawSeries("DCGM_FI_DEV_GPU_UTIL", {**labels, "Hostname": "n1", "gpu": str(gpu)}, ((time_s, 90.0),)),
            RawSeries("up", labels, ((time_s, 1.0),)),
        ]

    translator = Translator(load_mapping("dcgm"), MachineMap("Hostname"))
    found = []
    for number in range(4):
        found += translator.translate([*scrape(9400, 0, 10.0 * number), *scrape(9401, 1, 10.0 * number)])
    assert {sample.device for sample in found if "gpu_duty_cycle_ratio" in sample.values} == {"gpu0", "gpu1"}
    assert [sample.device for sample in found if "scrape_up" in sample.values] == ["dcgm"] * 4


def test_two_targets_that_give_one_device_of_one_machine_are_an_error() -> None:
    translator = Translator(load_mapping("dcgm"), MachineMap("Hostname"))
    labels = {"job": "dcgm", "Hostname": "n1", "gpu": "0"}
    series = [RawSeries("DCGM_FI_DEV_GPU_UTIL", {**labels, "instance": instance}, ((10.0, 90.0),)) for instance in ("a:1", "b:1")]
    with pytest.raises(IdentityError, match="both give gpu_duty_cycle_ratio"):
        translator.translate(series)
