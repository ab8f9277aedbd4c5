"""What each probe measures and when it says that a machine is faulty, with real faults where they can be had without root."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest

from minder.edge.probes import all_to_all, clock, dcgm, device_health, disk, gemm, hardware, links, loopback, memory
from minder.edge.probes.contract import Finding


def value(found: Finding, name: str, device: str | None = None) -> float:
    return next(item.value for item in found.measures if (item.name, item.device) == (name, device))


# gemm


def test_right_products_are_measured_on_the_processor() -> None:
    found = gemm.measure({"seconds": 0.02, "size": 128})
    assert found.state == "measured" and value(found, "gemm_gflops") > 0 and value(found, "gemm_wrong") == 0
    assert {"torch", "processor", "processors", "size"} <= set(found.facts)


@pytest.mark.parametrize("bit", [0, 1, 12, 22, 23, 30, 31])
def test_one_flipped_bit_in_one_product_is_a_fault_with_its_place(bit: int) -> None:
    import torch

    done = []

    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        found = left @ right
        done.append(found)
        if len(done) == 3:
            found.view(torch.int32)[17, 40] ^= 1 << bit
        return found

    found = gemm.measure({"seconds": 0.0, "size": 128}, product)
    assert found.state == "failed" and value(found, "gemm_wrong") == 1
    assert "products are wrong, the first at" in found.detail
    assert "row 17, column 40 (1 rows, 1 columns)" in found.detail


def test_errors_that_cancel_in_a_plain_sum_are_seen() -> None:
    import torch

    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        found = left @ right
        found[3, 5] += 8
        found[3, 6] -= 8
        found[4, 5] -= 8
        found[4, 6] += 8
        return found

    assert gemm.measure({"seconds": 0.0, "size": 64}, product).state == "failed"


# memory


def test_memory_is_copied_and_compared() -> None:
    found = memory.measure({"seconds": 0.02, "block_bytes": 1 << 20})
    assert found.state == "measured" and value(found, "memory_copy") > 0


def test_a_copy_that_changes_a_bit_is_a_fault() -> None:
    def copy(target: Any, source: Any, size: int) -> None:
        ctypes.memmove(target, source, size)
        target[size // 2] = bytes([target.raw[size // 2] ^ 4])

    found = memory.measure({"seconds": 0.0, "block_bytes": 1 << 16}, copy)
    assert found.state == "failed" and "differ from what was written" in found.detail


# disk


def test_a_disk_is_written_with_fsync_and_read_back_and_nothing_stays(tmp_path: Path) -> None:
    found = disk.measure({"folder": str(tmp_path), "size_bytes": 4 << 20})
    assert found.state == "measured", found.detail
    assert all(value(found, name) > 0 for name in ("disk_write", "disk_read", "disk_fsync", "disk_free"))
    assert found.data["folder"] == str(tmp_path) and found.facts["file_system"] != "?"
    assert list(tmp_path.iterdir()) == []
    other = tmp_path / "another-machine"
    other.mkdir()
    again = disk.measure({"folder": str(other), "size_bytes": 4 << 20})
    assert again.facts == found.facts, "equal disks are compared, whatever their folder is called"


@pytest.mark.parametrize(
    ("number", "said"),
    [(errno.ENOSPC, "the disk is full"), (errno.EDQUOT, "the quota"), (errno.EIO, "I/O errors"), (errno.EROFS, "read-only")],
)
def test_what_the_disk_refuses_is_a_fault_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str) -> None:
    def fail(handle: int, block: Any) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "write", fail)
    found = disk.measure({"folder": str(tmp_path), "size_bytes": 4 << 20})
    assert found.state == "failed" and said in found.detail and str(tmp_path) in found.detail


def test_a_folder_that_cannot_be_used_says_nothing_of_the_disk(tmp_path: Path) -> None:
    found = disk.measure({"folder": str(tmp_path / "none")})
    assert (found.state, found.measures) == ("not_applicable", ()) and "No such file" in found.detail


@pytest.mark.root
def test_a_full_disk_is_a_clear_result(tmp_path: Path) -> None:
    import subprocess

    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "probe", str(tmp_path)], check=True)
    try:
        (tmp_path / "filler").write_bytes(bytes(12 << 20))
        found = disk.measure({"folder": str(tmp_path)})
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert found.state == "failed" and "the disk is full" in found.detail and value(found, "disk_free") <= 4 << 20


def test_the_file_system_is_that_of_the_longest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert disk.file_system_of(tmp_path / "deep", mounts) == "nfs4"
    assert disk.file_system_of(Path("/"), mounts) == "ext4"


# clock


def test_a_clock_is_compared_with_the_controllers_within_half_the_round_trip() -> None:
    found = clock.measure({"controller_time_s": 1000.0, "received_s": 1030.2, "round_trip_s": 0.4})
    assert value(found, "clock_offset") == pytest.approx(30.0)
    (offset,) = [item for item in found.measures if item.name == "clock_offset"]
    assert offset.tolerance == pytest.approx(0.225) and (offset.better, offset.bad) == ("same", "fail")


@pytest.mark.parametrize("options", [{}, {"controller_time_s": 1.0}, {"controller_time_s": "now", "received_s": 1.0, "round_trip_s": 0.1}])
def test_without_the_controllers_time_a_clock_is_not_judged(options: dict[str, Any]) -> None:
    assert clock.measure(options).state == "not_applicable"


# loopback, links


def test_loopback_is_measured() -> None:
    found = loopback.measure({"seconds": 0.02})
    assert value(found, "loopback_bandwidth") > 1e6 and 0 < value(found, "loopback_round_trip") < 1


def port(folder: Path, name: str, hardware_: bool = True, **files: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "type").write_text("1\n")
    for file, text in files.items():
        (folder / name / file).write_text(text + "\n")
    if hardware_:
        (folder / name / "device").mkdir()


def test_ports_with_hardware_say_their_state_and_speed(tmp_path: Path) -> None:
    net, infiniband = tmp_path / "net", tmp_path / "infiniband"
    port(net, "eth0", operstate="up", speed="100000", carrier_changes="3")
    port(net, "eth1", operstate="down", speed="-1")
    port(net, "veth7", hardware_=False, operstate="up", speed="10000")
    one = infiniband / "mlx5_0" / "ports" / "1"
    (one / "counters").mkdir(parents=True)
    for file, text in {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "counters/link_downed": "2"}.items():
        (one / file).write_text(text + "\n")
    found = links.measure({}, net, infiniband)
    said = {(item.name, item.device): item.value for item in found.measures}
    assert said == {
        ("link_up", "eth0"): 1, ("link_speed", "eth0"): 1e11, ("link_changes", "eth0"): 3, ("link_up", "eth1"): 0,
        ("link_up", "mlx5_0/1"): 1, ("link_speed", "mlx5_0/1"): 4e11, ("link_changes", "mlx5_0/1"): 2,
    }  # fmt: skip


def test_a_container_has_its_own_interfaces_and_a_machine_without_any_is_not_judged(tmp_path: Path) -> None:
    assert links.measure({}, tmp_path / "net", tmp_path / "none").state == "not_applicable"
    port(tmp_path / "net", "eth0", hardware_=False, operstate="up", speed="10000")
    assert {item.device for item in links.measure({}, tmp_path / "net", tmp_path / "none").measures} == {"eth0"}


# device_health


class NvmlError(Exception):
    value = 3


class NvmlLost(NvmlError):
    value = 15


class FakeNvml:
    """Two GPUs; what stands in `broken` deviates on the second one."""

    NVMLError = NvmlError

    def __init__(self, **broken: Any) -> None:
        self._broken = broken

    def nvmlInit(self) -> None:
        if "init" in self._broken:
            raise NvmlError("NVML Shared Library Not Found")

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.1"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index == 1 and self._broken.get("lost"):
            raise NvmlLost("GPU is lost")
        return index

    def _of(self, handle: int, name: str, usual: Any) -> Any:
        return self._broken.get(name, usual) if handle == 1 else usual

    def nvmlDeviceGetName(self, handle: int) -> str:
        return "H100"

    def nvmlDeviceGetRemappedRows(self, handle: int) -> list[int]:
        return list(self._of(handle, "rows", [0, 0, 0, 0]))

    def nvmlDeviceGetTotalEccErrors(self, handle: int, kind: int, counter: int) -> int:
        assert (kind, counter) == (1, 0)
        return int(self._of(handle, "ecc", 0))

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:
        if link > 3:
            raise NvmlError("not supported")
        return int(link < self._of(handle, "links", 4))

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: int) -> int:
        return int(self._of(handle, "width", 16))

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return int(self._of(handle, "reasons", 1))

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 40


def test_healthy_gpus_are_told_in_numbers() -> None:
    found = device_health.measure({}, FakeNvml())
    assert found.state == "measured" and value(found, "gpus") == 2 and found.facts["driver"] == "570.1"
    names = ("gpu_ecc_uncorrected", "gpu_rows_remapped", "gpu_nvlinks", "gpu_pcie_width", "gpu_hardware_throttled")
    assert [value(found, name, "gpu1") for name in names] == [0, 0, 4, 16, 0]


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"rows": [0, 1, 0, 1]}, "gpu1: a row remapping failed"),
        ({"rows": [0, 1, 1, 0]}, "gpu1: a row remapping is pending"),
        ({"lost": True}, "gpu1: the driver has lost it"),
    ],
)
def test_what_the_driver_calls_broken_is_a_fault(broken: dict[str, Any], said: str) -> None:
    found = device_health.measure({}, FakeNvml(**broken))
    assert found.state == "failed" and said in found.detail


@pytest.mark.parametrize(
    ("what", "name", "said"), [("ecc", "gpu_ecc_uncorrected", 3), ("width", "gpu_pcie_width", 8), ("links", "gpu_nvlinks", 2)]
)
def test_numbers_alone_are_left_to_the_comparison(what: str, name: str, said: int) -> None:
    found = device_health.measure({}, FakeNvml(**{what: said}))
    assert found.state == "measured" and value(found, name, "gpu1") == said


def test_heat_that_holds_the_clock_down_is_told_and_an_idle_clock_is_not() -> None:
    assert value(device_health.measure({}, FakeNvml(reasons=0x40)), "gpu_hardware_throttled", "gpu1") == 1
    assert value(device_health.measure({}, FakeNvml(reasons=0x1)), "gpu_hardware_throttled", "gpu1") == 0


def test_without_a_driver_gpus_are_not_applicable() -> None:
    found = device_health.measure({}, FakeNvml(init=True))
    assert found.state == "not_applicable" and "Shared Library" in found.detail


# dcgm


def report(*results: dict[str, Any], key: str = "DCGM Diagnostic") -> str:
    tests = [{"name": "Graphics Processes", "results": [{"gpu_id": "0", "status": "Pass"}]}, {"name": "PCIe", "results": list(results)}]
    return "Running\n" + json.dumps({key: {"version": "3.3", "test_categories": [{"category": "Deployment", "tests": tests}]}})


@pytest.mark.parametrize("key", ["DCGM Diagnostic", "DCGM GPU Diagnostic"])
def test_a_failed_test_of_dcgm_is_a_fault(key: str) -> None:
    failed = {"gpu_id": "3", "status": "Fail", "warnings": [{"warning": "PCIe replays", "error_id": 7}]}
    found = dcgm.read_report(report(failed, {"gpu_id": "1", "status": "Skip"}, key=key))
    assert (found.state, found.detail) == ("failed", "PCIe gpu 3: PCIe replays")
    assert (value(found, "dcgm_tests"), value(found, "dcgm_failed")) == (2, 1)


def test_a_clean_report_passes_and_no_report_is_no_pass(tmp_path: Path) -> None:
    assert dcgm.read_report(report({"gpu_id": "1", "status": "Pass"})).state == "measured"
    for text in ("", "Error: unable to connect to nv-hostengine", "{}", '{"error": "x"}'):
        with pytest.raises(ValueError, match="wrote no report"):
            dcgm.read_report(text)
    assert dcgm.measure({}, command="no-such-dcgmi").state == "not_applicable"


def test_dcgmi_is_called_as_it_is_documented(tmp_path: Path) -> None:
    script = tmp_path / "dcgmi"
    script.write_text(f"#!/bin/sh\n[ \"$*\" = 'diag -r 1 -j' ] || exit 9\ncat <<'END'\n{report({'gpu_id': '1', 'status': 'Pass'})}\nEND\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert dcgm.measure({}, command=str(script)).state == "measured"


# all_to_all


def played_rank(plan: dict[str, Any]) -> dict[str, Any]:
    return {"gpu": "", "bandwidth": 1e9 - plan["rank"], "latency_s": 1e-4, "wrong": int(plan["rank"] == plan["corrupt_rank"])}


def test_all_to_all_tells_the_slowest_rank_and_wrong_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_to_all, "_take_part", played_rank)
    found = all_to_all.measure({"ranks": 3})
    assert found.state == "measured" and value(found, "all_to_all_bandwidth") == 1e9 - 2 and found.facts["backend"] == "gloo"
    found = all_to_all.measure({"ranks": 3, "corrupt_rank": 1})
    assert (found.state, found.detail) == ("failed", "rank 1 received 1 wrong bytes")


def test_a_dead_rank_and_a_silent_one_end_the_probe_without_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(plan: dict[str, Any]) -> dict[str, Any]:
        return os._exit(3) if plan["rank"] == 1 else played_rank(plan)

    monkeypatch.setattr(all_to_all, "_take_part", dead)
    with pytest.raises(RuntimeError, match="rank 1 of the all-to-all ended before its time"):
        all_to_all.measure({"ranks": 2})
    monkeypatch.setattr(all_to_all, "_take_part", lambda plan: time.sleep(60))
    monkeypatch.setattr(all_to_all, "_LEAST_S", 0.2)
    with pytest.raises(RuntimeError, match="rank 0 of the all-to-all said nothing within"):
        all_to_all.measure({"ranks": 2, "limit_s": 0.0})


@pytest.mark.release
def test_a_real_all_to_all_of_processes_finds_one_wrong_byte() -> None:
    found = all_to_all.measure({"ranks": 2, "block_bytes": 4096})
    assert found.state == "measured" and value(found, "all_to_all_bandwidth") > 0, found.detail
    found = all_to_all.measure({"ranks": 2, "block_bytes": 4096, "corrupt_rank": 1})
    assert found.state == "failed" and "1 wrong bytes" in found.detail


# what is compared


def test_a_processor_is_known_by_its_model_and_number(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Xeon X\n\nprocessor\t: 1\nmodel name\t: Xeon X\n")
    assert hardware.cpu_facts(cpuinfo) == {"processor": "Xeon X", "processors": str(os.cpu_count())}
    assert hardware.cpu_facts(tmp_path / "none")["processor"] == os.uname().machine
