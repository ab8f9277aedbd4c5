"""RDMA ports in a made-up sysfs: rates' counters, saturation, resets, ports that go down."""

from __future__ import annotations

from pathlib import Path

import pytest

from minder.edge.exporters.infiniband import InfinibandExporter


class Port:
    def __init__(self, root: Path, adapter: str = "mlx5_0", number: int = 1) -> None:
        self.folder = root / adapter / "ports" / str(number)
        (self.folder / "counters").mkdir(parents=True)
        (self.folder / "hw_counters").mkdir()
        self.set(state="4: ACTIVE")

    def set(self, **values: object) -> None:
        for name, value in values.items():
            place = {"state": ".", "port": "counters", "link": "counters", "symbol": "counters"}.get(name.split("_")[0], "hw_counters")
            (self.folder / place / name).write_text(f"{value}\n")


def test_throughput_is_in_bytes_and_counts_from_the_first_look(tmp_path: Path) -> None:
    port = Port(tmp_path)
    port.set(port_rcv_data=1000, port_xmit_data=500, port_xmit_wait=7, np_cnp_sent=3, rp_cnp_handled=1, np_ecn_marked_roce_packets=9)
    exporter = InfinibandExporter(tmp_path)
    exporter.read(1.0)
    port.set(port_rcv_data=1100, port_xmit_data=600, port_xmit_wait=9, np_cnp_sent=5, rp_cnp_handled=2)
    counters = exporter.read(2.0).counters
    assert counters["rdma_receive_bytes", "mlx5_0"] == 400
    assert counters["rdma_transmit_bytes", "mlx5_0"] == 400
    assert counters["rdma_xmit_wait", "mlx5_0"] == 2
    assert counters["cnp_packets", "mlx5_0"] == 3
    assert counters["ecn_packets", "mlx5_0"] == 0


@pytest.mark.parametrize(("name", "limit", "metric"), [("link_downed", 255, "link_downs"), ("port_xmit_wait", 2**32 - 1, "rdma_xmit_wait")])
def test_a_saturated_counter_is_no_data(tmp_path: Path, name: str, limit: int, metric: str) -> None:
    port = Port(tmp_path)
    port.set(**{name: limit})
    exporter = InfinibandExporter(tmp_path)
    assert (metric, "mlx5_0") not in exporter.read(1.0).counters
    assert (metric, "mlx5_0") not in exporter.read(2.0).counters


def test_a_driver_reset_is_no_negative_growth(tmp_path: Path) -> None:
    port = Port(tmp_path)
    port.set(symbol_error=50)
    exporter = InfinibandExporter(tmp_path)
    seen = []
    for value in (50, 60, 0, 5):
        port.set(symbol_error=value)
        seen.append(exporter.read(1.0).counters["link_errors", "mlx5_0"])
    assert seen == [0, 10, 10, 15]


def test_one_saturated_error_counter_leaves_the_others(tmp_path: Path) -> None:
    port = Port(tmp_path)
    port.set(symbol_error=65534, port_rcv_errors=1)
    exporter = InfinibandExporter(tmp_path)
    exporter.read(1.0)
    port.set(symbol_error=65535, port_rcv_errors=4)
    assert exporter.read(2.0).counters["link_errors", "mlx5_0"] == 3


def test_a_port_that_goes_down_and_up_is_reported(tmp_path: Path) -> None:
    Port(tmp_path, number=1)
    second = Port(tmp_path, number=2)
    exporter = InfinibandExporter(tmp_path, "m1")
    assert exporter.read(1.0).signals == []
    second.set(state="1: DOWN")
    second.set(port_rcv_data=1)
    down = exporter.read(2.0).signals
    second.set(state="2: INIT")
    assert exporter.read(3.0).signals == []
    second.set(state="4: ACTIVE")
    up = exporter.read(4.0).signals
    assert [(item.kind, item.machine, item.device, item.data["state"]) for item in down + up] == [
        ("link", "m1", "mlx5_0/2", "down"),
        ("link", "m1", "mlx5_0/2", "up"),
    ]


def test_no_rdma_is_nothing(tmp_path: Path) -> None:
    assert len(InfinibandExporter(tmp_path / "none").read(1.0)) == 0
