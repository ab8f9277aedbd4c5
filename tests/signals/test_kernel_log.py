"""Kernel log lines: written for these tests after the kernel's and the drivers' formats, and real excerpts beside this file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from minder.edge.signals.kernel_log import parse_kernel_line, parse_kmsg_record, split_log_line

DATA = Path(__file__).parent / "data"
SHARED = Path(os.environ.get("MINDER_SHARED", Path(__file__).parents[3] / "shared")) / "data" / "kernel_logs"


@pytest.mark.parametrize(
    ("line", "code", "pci", "pid"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.", 79, "0000:3b:00", 1234),
        ("NVRM: Xid (PCI:0000:C1:00): 31, pid='<unknown>', name=<unknown>, Ch 00000008, MMU Fault", 31, "0000:c1:00", None),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid='77', name=train, Contained: SM", 94, "0000:01:00", 77),
        ("NVRM: Xid (0000:03:00): 14, Channel 00000001", 14, "0000:03:00", None),
        ("[  12.5] NVRM: Xid (PCI:0018:01:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00", 145, "0018:01:00", None),
    ],
)
def test_xids(line: str, code: int, pci: str, pid: int | None) -> None:
    signal = parse_kernel_line(line, 5.0, "m1")
    assert signal is not None and signal.kind == "xid" and signal.machine == "m1" and signal.time_s == 5.0
    assert (signal.data["code"], signal.device, signal.pid) == (code, pci, pid)
    assert signal.message == line


def test_a_switch_error_is_no_xid() -> None:
    """Both have a code, and the codes mean different things."""
    line = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)"
    signal = parse_kernel_line(line, 0.0)
    assert signal is not None and signal.kind == "kernel"
    assert (signal.device, dict(signal.data)) == ("nvidia-nvswitch3", {"what": "sxid", "code": 12028, "fatal": False})


def test_an_oom_kill_names_process_and_cgroup() -> None:
    line = (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/m1,"
        "task_memcg=/m1/workers,task=pt_main_thread,pid=4211,uid=0"
    )
    signal = parse_kernel_line(line, 0.0)
    assert signal is not None and signal.kind == "kernel" and signal.pid == 4211
    assert dict(signal.data) == {"what": "oom", "pid": 4211, "cgroup": "/m1/workers", "name": "pt_main_thread"}
    follow_up = parse_kernel_line("Memory cgroup out of memory: Killed process 4211 (pt_main_thread) total-vm:9kB, anon-rss:1kB", 0.0)
    assert follow_up is not None and (follow_up.data["what"], follow_up.pid, follow_up.data["cgroup"]) == ("oom", 4211, None)


@pytest.mark.parametrize(
    ("line", "what", "device", "pid"),
    [
        ("INFO: task python3:991 blocked for more than 120 seconds.", "hung_task", None, 991),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:123]", "lockup", None, 123),
        (
            "EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2: comm ls: reading directory lblock 0",
            "filesystem",
            "nvme0n1p1",
            None,
        ),
        ("blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)", "disk", "sda", None),
        ("Buffer I/O error on dev dm-0, logical block 5, async page read", "disk", "dm-0", None),
        ("nvme nvme1: I/O 12 QID 3 timeout, aborting", "disk", "nvme1", None),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10", "disk", "nvme0", None),
        ("mlx5_core 0000:41:00.0: health poll failed to update", "nic", "0000:41:00.0", None),
        ("mlx5_core 0000:41:00.0: ACCESS_REG(0x805) timeout. Will cause a leak of a command resource", "nic", "0000:41:00.0", None),
        ("pcieport 0000:5d:02.0: AER: Uncorrected (Fatal) error received: 0000:5e:00.0", "pcie", "0000:5d:02.0", None),
        ("mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 4: be00000000800400", "machine_check", None, None),
        ("nfs: server store-3 not responding, still trying", "storage_server", None, None),
        ("python[77]: segfault at 7f ip 00007f sp 00007f error 4 in libtorch.so[7f7c+1]", "segfault", None, 77),
        ("BUG: unable to handle page fault for address: 0000", "crash", None, None),
        ("NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.", "gpu_lost", "0000:3b:00", None),
    ],
)
def test_other_faults(line: str, what: str, device: str | None, pid: int | None) -> None:
    signal = parse_kernel_line(line, 0.0)
    assert signal is not None and signal.kind == "kernel"
    assert (signal.data["what"], signal.device, signal.pid) == (what, device, pid)


@pytest.mark.parametrize(
    ("line", "device", "state"),
    [
        ("mlx5_core 0000:41:00.0 ens1f0np0: Link down", "ens1f0np0", "down"),
        ("mlx5_core 0000:41:00.0 ens1f0np0: Link up", "ens1f0np0", "up"),
        ("bnxt_en 0000:18:00.0 eno1np0: NIC Link is Down", "eno1np0", "down"),
        ("ice 0000:31:00.0 eth3: NIC Link is up 100 Gbps Full Duplex", "eth3", "up"),
        ("bond0: (slave eth1): link status definitely down, disabling slave", "eth1", "down"),
    ],
)
def test_links(line: str, device: str, state: str) -> None:
    signal = parse_kernel_line(line, 0.0)
    assert signal is not None and signal.kind == "link"
    assert (signal.device, signal.data["state"]) == (device, state)


@pytest.mark.parametrize(
    "line",
    [
        "ata3: SATA link down (SStatus 0 SControl 300)",
        "mlx5_core 0000:41:00.1: 63.008 Gb/s available PCIe bandwidth (8.0 GT/s PCIe x8 link)",
        "IPv6: ADDRCONF(NETDEV_CHANGE): veth12: link becomes ready",
        "br0: port 2(veth1) entered disabled state",
        "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.54.15",
        "usb 1-2: New USB device found",
        "mce: [Hardware Error]: Corrected error, no action required.",
        "mce: [Hardware Error]: Machine check events logged",  # of corrected ones too, and it says no more
        "",
    ],
)
def test_lines_of_no_interest(line: str) -> None:
    assert parse_kernel_line(line, 0.0) is None


def test_kmsg_records() -> None:
    line = parse_kmsg_record("3,812,206764307,-;nvidia: first line\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n", 1000.0)
    assert line is not None and line.message == "nvidia: first line"
    assert line.time_s == pytest.approx(1206.764307)
    assert parse_kmsg_record("no record", 0.0) is None
    assert parse_kmsg_record("6,1,x,-;text", 0.0) is None
    tried = parse_kmsg_record("12,1,5,-;NVRM: Xid (PCI:0000:1b:00): 79", 0.0)  # a site tries its alarm, with the facility of a program
    assert tried is not None and tried.message.endswith("79")


@pytest.mark.parametrize(
    ("line", "time_s", "message"),
    [
        ("[Sun Feb 23 16:24:18 2025] NVRM: hello", 1740327858.0, "NVRM: hello"),
        ("kern  :warn  : 2025-01-21T04:41:44,285060+00:00 python[1]: hello", 1737434504.28506, "python[1]: hello"),
        ("<6>[  201.650687] sysrq: SysRq", None, "sysrq: SysRq"),
        ("[  201.650687] hello", None, "hello"),
        ("hello", None, "hello"),
        ("[  201.650687][ T4211] hello", None, "hello"),
        ("[  201.650687] [    C12] NMI watchdog: hello", None, "NMI watchdog: hello"),
        ("kern  :err   : [  201.650687] hello", None, "hello"),
        ("4,3964,206764307,-;hello", None, "hello"),
        ("Mar  2 06:05:00 gpu-17 kernel: hello", None, "hello"),
        ("Mar 02 06:05:00.123456 gpu-17 kernel: [  812.345678] hello", None, "hello"),
        ("2026-03-02T06:05:00+0000 gpu-17.site.example kernel: hello", 1772431500.0, "hello"),
        ("1772431500.5 gpu-17 kernel: hello", 1772431500.5, "hello"),
        ("[  812.345678] gpu-17 kernel: hello", None, "hello"),
        ("Mar  2 06:05:00 gpu-17 train[9]: NVRM: copied into a log", None, ""),  # another program wrote it
        ("2026-03-02T06:05:00,5+00:00 mlx5_core 0000:5c:00.0: hello", 1772431500.5, "mlx5_core 0000:5c:00.0: hello"),
    ],
)
def test_time_stamps_of_dmesg(line: str, time_s: float | None, message: str) -> None:
    found = split_log_line(line)
    assert found == (pytest.approx(time_s) if time_s is not None else None, message)


def _signals(folder: Path, name: str) -> list[object]:
    lines = (folder / name).read_text(errors="replace").splitlines()
    found = [parse_kernel_line(split_log_line(line)[1], 0.0) for line in lines]
    return [(item.kind, item.data.get("code") or item.data.get("what")) for item in found if item is not None]


def test_real_excerpts() -> None:
    assert _signals(DATA, "xid-119.log") == [("xid", 119)]
    assert _signals(DATA, "segfault.log") == [("kernel", "segfault")]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared kernel logs are not here")
def test_real_logs() -> None:
    assert set(_signals(SHARED, "dmesg-xid-119.log")) == {("xid", 119)}
    assert set(_signals(SHARED, "dmesg-nccl.log")) == {("kernel", "segfault")}
    assert _signals(SHARED, "pstore-2.txt") == [("kernel", "nic"), ("link", None), ("kernel", "crash")]  # its disks' links are none
    assert ("kernel", "crash") in _signals(SHARED, "pstore-1.txt")
