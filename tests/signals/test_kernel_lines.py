"""Lines of kernel logs in many wordings: what each must be made of. Corrected and harmless ones are no signal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minder.edge.signals.kernel_log import parse_kernel_line
from minder.edge.signals.rules import event_of
from minder.model.evidence import Signal

DATA = Path(__file__).parent / "data"


def what_and_device(signal: Signal | None) -> tuple[str | None, str | None]:
    """(what, device) in the words of kernel-lines.json."""
    if signal is None:
        return None, None
    if signal.kind == "link":
        return f"link {signal.data['state']}", signal.device
    pid = "" if signal.pid is None else f" (pid {signal.pid})"
    return f"{signal.data['what']}{pid}", signal.device


def test_the_lines_that_people_reported() -> None:
    lines = (DATA / "kernel-lines.log").read_text(encoding="utf-8").splitlines()
    expected = json.loads((DATA / "kernel-lines.json").read_text(encoding="utf-8"))
    assert len(lines) == len(expected) == 15
    assert [what_and_device(parse_kernel_line(line, 1.0)) for line in lines] == [(item["what"], item["device"]) for item in expected]


@pytest.mark.parametrize(
    ("line", "event", "device"),
    [
        (
            r"NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:2330) installed in this system has\x0aNVRM: fallen off the bus.",
            "gpu_lost",
            "0000:b3:00",
        ),
        ("NVRM: Check failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned", "gpu_lost", None),
        ("amdgpu 0000:83:00.0: amdgpu: device lost from bus!", "gpu_lost", "0000:83:00.0"),
        ("NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x22:0xffff:667)", "gpu.init_failed", "0000:3b:00"),
        ("NVRM: rm_init_adapter failed, device minor number 3", "gpu.init_failed", None),
        ("NVRM: GPU0 _kgspRpcRecvPoll: Timeout after 45s of waiting for RPC response from GPU0 GSP!", "gpu.gsp_timeout", None),
        ("NVRM: _kgspIsHeartbeatTimedOut: GSP heartbeat", "gpu.gsp_timeout", None),
        ("amdgpu 0000:83:00.0: amdgpu: socket: 1, die: 0 3 uncorrectable hardware errors detected", "gpu.uncorrectable", "0000:83:00.0"),
        ("amdgpu 0000:83:00.0: amdgpu: GPU reset begin!", "gpu.reset", "0000:83:00.0"),
        ("amdgpu 0000:83:00.0: amdgpu: GPU reset end with ret = -62", "gpu.reset_failed", "0000:83:00.0"),
        ("nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up", "sxid.fatal", "nvidia-nvswitch3"),
        ("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 22013, Non-fatal, Link 21", "sxid.nonfatal", "nvidia-nvswitch0"),
        ("Out of memory: Kill process 88211 (python3) score 912 or sacrifice child", "oom", None),
        ("Killed process 88211 (python3) total-vm:123kB, anon-rss:1000kB, file-rss:0kB", "oom", None),
        ("Killed process 88211, UID 1000, (python3) total-vm:123kB, anon-rss:1000kB", "oom", None),
        ("Memory cgroup out of memory: Kill process 9 (pt_data_worker) score 1974 or sacrifice child", "oom", None),
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 12", "lockup.hard", None),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "lockup", None),
        ("MCE 0x3f5a1c2: Killing python:123 due to hardware memory corruption", "machine_check.memory", None),
        ("Memory failure: 0x3f5a1c2: recovery action for reserved kernel page: Ignored", "machine_check.memory", None),
        ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0", "machine_check.memory", "MC0"),
        ("mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: be00000000800400", "machine_check.uncorrected", None),
        ("mce: [Hardware Error]: CPU 0: Machine Check Exception: 5 Bank 4: be00000000800400", "machine_check.uncorrected", None),
        ("{3}[Hardware Error]: event severity: fatal", "machine_check.uncorrected", None),
        ("{3}[Hardware Error]: event severity: recoverable", "machine_check.recoverable", None),
        ("{3}[Hardware Error]:  Error 0, type: recoverable", "machine_check.recoverable", None),
        ("{4}[Hardware Error]: event severity: fatal", "machine_check.uncorrected", None),
        ("Kernel panic - not syncing: Out of memory: system-wide panic_on_oom is enabled", "oom", None),
        ("Kernel panic - not syncing: Fatal exception", "crash.panic", None),
        ("EXT4-fs error (device rbd0): ext4_find_entry:1455: inode #2: comm python: reading directory", "storage_server", "rbd0"),
        ("XFS (nbd3): log I/O error -5", "storage_server", "nbd3"),
        ("EXT4-fs (loop7): Remounting filesystem read-only", "storage_server", "loop7"),
        ("Aborting journal on device rbd0-8.", "storage_server", "rbd0-8"),
        ("nvme nvme3: Device not ready; aborting initialisation, CSTS=0x0", "disk.timeout", "nvme3"),
        ("nvme nvme3: Disabling device after reset failure: -19", "disk.lost", "nvme3"),
        ("nvme nvme3: I/O tag 512 (1200) opcode 0x2 (Read) QID 5 timeout, aborting req_op:READ(0) size:4096", "disk.timeout", "nvme3"),
        ("nvme nvme2: I/O tag 12 (600c) type 4 opcode 0x1 (Write) QID 3 timeout", "storage_server", None),
        ("nvme nvme2: I/O tag 12 (600c) opcode 0x1 (I/O Cmd) QID 3 timeout", "storage_server", None),
        ("nvme nvme2: queue 3: timeout request 0x12 type 4", "storage_server", None),
        ("nvme nvme2: starting error recovery", "storage_server", None),
        ("nvme nvme2: Reconnecting in 10 seconds...", "storage_server", None),
        ("nvme nvme2: failed to connect socket: -110", "storage_server", None),
        ("EXT4-fs (dm-0): shut down requested (2)", "filesystem", "dm-0"),
        ("EXT4-fs (rbd0): shut down requested (2)", "storage_server", "rbd0"),
        (
            "NVRM: nvGpuOpsReportFatalError: uvm encountered global fatal error 0x60, requiring os reboot to recover.",
            "gpu.reset_required",
            None,
        ),
        ("amdgpu 0000:c1:00.0: amdgpu: RAS poison is consumed by client GFX, kick off gpu reset flow", "gpu.uncorrectable", "0000:c1:00.0"),
        ("Kernel panic - not syncing: Fatal exception in interrupt", "crash.panic", None),
        ("thermal thermal_zone0: critical temperature reached (105 C), shutting down", "overheated", None),
        (
            "mlx5_core 0000:5d:00.0: print_health_info:430:(pid 0): Health issue observed, x, severity(3) ERROR:",
            "nic.health",
            "0000:5d:00.0",
        ),
        ("mlx5_core 0000:5d:00.0 ens1f0np0: TX timeout detected", "nic.timeout", "0000:5d:00.0"),
        ("gve 0000:00:0c.0: TX timeout on queue 3", "nic.timeout", "0000:00:0c.0"),
        ("ena 0000:00:06.0 eth1: Reset attempt failed. Can not reset the device", "nic.health", "0000:00:06.0"),
        ("hfi1 0000:5e:00.0: hfi1_0: link_down reason: 8", "link.down", "hfi1_0"),
        ("XFS (nvme1n1): Log I/O Error Detected.  Shutting down filesystem", "filesystem", "nvme1n1"),
        ("LustreError: 11-0: scratch-OST0012-osc: operation ost_write to node 10.0.0.1@o2ib failed: rc = -107", "storage_server", None),
        ("libceph: osd3 (1)10.0.0.3:6800 socket error on write", "storage_server", None),
        ("pcieport 0000:00:01.0: AER: Uncorrectable (Fatal) error message received from 0000:01:00.0", "pcie.fatal", "0000:00:01.0"),
        ("mlx5_core 0000:c1:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer", "pcie.fatal", "0000:c1:00.0"),
        ("pcieport 0000:b0:01.0: DPC: containment event, status:0x1f01 source:0x0000", "pcie.dpc", "0000:b0:01.0"),
        ("pcieport 0000:b0:01.0: pciehp: Slot(12): Card not present", "pcie.removed", "0000:b0:01.0"),
        ("mlx5_core 0000:5c:00.0: poll_health:825:(pid 0): device's health compromised - reached miss count", "nic.health", "0000:5c:00.0"),
        ("mlx5_core 0000:5c:00.0: print_health_info:434:(pid 0): synd 0x1: firmware internal error", "nic.health", "0000:5c:00.0"),
        (
            "mlx5_core 0000:5c:00.0: temp_warn_event:135:(pid 0): High temperature on sensors with bit set",
            "nic.temperature",
            "0000:5c:00.0",
        ),
        ("mlx5_core 0000:5c:00.0: Port module event: module 0, Cable unplugged", "nic.cable", "0000:5c:00.0"),
        ("NETDEV WATCHDOG: ens1f0np0 (mlx5_core): transmit queue 3 timed out", "nic.timeout", "ens1f0np0"),
        ("mlx5_core 0000:5c:00.0 mlx5_0: Port: 2 Link DOWN", "link.down", "mlx5_0/2"),
        ("infiniband mlx5_5: Port: 1 Link ACTIVE", "link.up", "mlx5_5"),
        ("critical medium error, dev nvme1n1, sector 100 op 0x0:(READ)", "disk", "nvme1n1"),
        ("nvme nvme0: Removing after probe failure status: -19", "disk.lost", "nvme0"),
        ("BTRFS error (device sda1): bdev /dev/sda1 errs: wr 0, rd 1", "filesystem", "sda1"),
        ("LustreError: 167-0: scratch-OST0012-osc-ffff8f1: This client was evicted by scratch-OST0012;", "storage_server.evicted", None),
        ("mmfs: [E] This node was expelled from the cluster", "storage_server.evicted", None),
        ("Lustre: scratch-OST0012-osc-ffff: Connection to scratch-OST0012 (at 10.0.0.1@o2ib) was lost;", "storage_server", None),
        ("traps: python3[12] trap invalid opcode ip:55 sp:7f error:0 in libx.so[1+2]", "segfault", None),
        ("traps: python3[12] general protection fault ip:55 sp:7f error:0", "segfault", None),
        ("general protection fault: 0000 [#1] SMP NOPTI", "crash", None),
        # other kernels, drivers and vendors
        ("amdgpu: qcm fence wait loop timeout expired", "gpu.reset", None),
        ("amdgpu 0000:05:00.0: amdgpu: MODE1 reset", "gpu.reset", "0000:05:00.0"),
        ("amdgpu 0000:05:00.0: amdgpu: ASIC reset failed with error, -62 for drm dev, 0000:05:00.0", "gpu.reset_failed", "0000:05:00.0"),
        ("amdgpu 0000:05:00.0: amdgpu: Saved bad pages 128 reaches threshold value 128", "gpu.bad_pages", "0000:05:00.0"),
        ("amdgpu 0000:05:00.0: amdgpu: socket: 0, die: 0, 2 new uncorrectable hardware errors", "gpu.uncorrectable", "0000:05:00.0"),
        ("xe 0000:18:00.0: [drm] *ERROR* CRITICAL: Xe has declared device 0000:18:00.0 as wedged.", "gpu.reset_failed", "0000:18:00.0"),
        ("i915 0000:00:02.0: [drm] Resetting chip for stopped heartbeat on rcs0", "gpu.reset", "0000:00:02.0"),
        ("habanalabs hl3: Device heartbeat failed!", "gpu", "hl3"),
        ("habanalabs 0000:33:00.0: Failed to reset! Device is NOT usable", "gpu.reset_failed", "0000:33:00.0"),
        ("habanalabs accel4: ECC event DERR HBM0 MC0", "gpu.uncorrectable", "accel4"),
        ("hfi1 0000:18:00.0: hfi1_0: logical state changed to PORT_DOWN (0x1)", "link.down", "hfi1_0"),
        ("bond0: link status definitely down for interface eth2, disabling it", "link.down", "eth2"),
        ("gve 0000:00:04.0 ens4: Link is down.", "link.down", "ens4"),
        ("mlx5_core 0000:5c:00.0 eth2: NETDEV WATCHDOG: CPU: 12: transmit queue 7 timed out 5432 ms", "nic.timeout", "eth2"),
        ("NETDEV WATCHDOG: CPU: 12: transmit queue 7 timed out 5432 ms", "nic.timeout", None),
        ("nvidia 0000:c1:00.0: Unable to change power state from D3cold to D0, device inaccessible", "pcie.removed", "0000:c1:00.0"),
        (
            "[Hardware Error]: CPU:16 (19:11:1) MC22_STATUS[Over|UE|MiscV|-|PCC|UECC|-]: 0xfea2000000000118",
            "machine_check.uncorrected",
            None,
        ),
        ("SError Interrupt on CPU12, code 0x00000000be000411 -- SError", "machine_check.uncorrected", None),
        ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "crash", None),
        ("Unable to handle kernel paging request at virtual address ffff0000", "crash", None),
        ("Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP NOPTI", "crash", None),
        ("Internal error: synchronous external abort: 0000000096000010 [#1] SMP", "crash", None),
        ("rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 3-.... } 21 jiffies s: 1", "lockup", None),
        ("INFO: task nv_queue:1844 <reader> blocked for more than 122 seconds.", "hung_task", None),
        ("nvme0n1: Read(0x2) @ LBA 100, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81) DNR", "disk", "nvme0n1"),
        ("md/raid1:md0: Disk failure on nvme0n1p1, disabling device.", "disk", "nvme0n1p1"),
        ("sd 2:0:0:0: [sdb] tag#12 Add. Sense: Unrecovered read error", "disk", "sdb"),
        ("Aborting journal on device nvme0n1p2-8.", "filesystem", "nvme0n1p2-8"),
        ("EXT4-fs warning (device sda1): ext4_end_bio:342: I/O error 10 writing to inode 12", "filesystem", "sda1"),
        ("ena 0000:00:06.0 eth1: Keep alive watchdog timeout.", "nic.timeout", "0000:00:06.0"),
        ("mlx5_core 0000:9a:00.0: mlx5_health_try_recover:335:(pid 80): health recovery failed", "nic.health", "0000:9a:00.0"),
        ("ionic 0000:31:00.0 enp49s0: Link down", "link.down", "enp49s0"),
        ("mmfs: [X] Deadman Switch timer [0] has expired; IOs in progress.", "storage_server.evicted", None),
        ("nvidia 0000:61:00.0: Unable to change power state from D0 to D3hot, device inaccessible", "pcie.removed", "0000:61:00.0"),
        ("neuron: nd3: NEURON_HW_ERR=HBM_UNCORRECTABLE_ERROR instance-id=i-0 hostname=n3", "gpu.uncorrectable", "nd3"),
        ("neuron: NEURON_HW_ERR=DMA_ERROR instance-id=i-0 hostname=n3", "gpu", None),
    ],
)
def test_wordings(line: str, event: str, device: str | None) -> None:
    signal = parse_kernel_line(line, 1.0)
    assert signal is not None
    assert (event_of(signal), signal.device) == (event, device)


@pytest.mark.parametrize(
    "line",
    [
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
        "EDAC skx MC2: HANDLING MCE MEMORY ERROR",
        "EDAC sbridge MC0: CPU 0: Machine Check Event: 0 Bank 7: 8c00004000010090",
        "mce: [Hardware Error]: Machine check events logged",
        "mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 7: 8c00004000010090",
        "[Hardware Error]: CPU:1 (19:1:1) MC17_STATUS[-|CE|MiscV|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000000011b",
        "[Hardware Error]: Corrected error, no action required.",
        "[Hardware Error]: Deferred error, no action required.",
        "{3}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 512",
        "{3}[Hardware Error]:  Error 0, type: corrected",
        "Memory failure: 0x3f5a1c2: recovery action for dirty LRU page: Recovered",
        "pcieport 0000:00:01.0: AER: Corrected error received: 0000:01:00.0",
        "pcieport 0000:00:01.0: AER: Multiple Uncorrectable (Non-Fatal) error message received from 0000:01:00.0",
        "pcieport 0000:00:01.0: AER: device recovery successful",
        "mlx5_core 0000:c1:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
        "pcieport 0000:b0:01.0: pciehp: Slot(12): Link Up",
        "amdgpu 0000:83:00.0: amdgpu: socket: 1, die: 0 0 uncorrectable hardware errors detected in umc block",
        "amdgpu 0000:83:00.0: amdgpu: 12 correctable hardware errors detected in umc block",
        "amdgpu 0000:83:00.0: amdgpu: GPU reset(2) succeeded!",
        "amdgpu 0000:83:00.0: amdgpu: GPU recovery disabled.",
        "amdgpu 0000:83:00.0: amdgpu: RAS poison is created, no user action is needed.",
        "amdgpu 0000:83:00.0: amdgpu: socket: 0, die: 0, 0 new uncorrectable hardware errors detected in umc block",
        "habanalabs hl5: Got ECC SERR interrupt",
        "pcieport 0000:97:01.0: pciehp: Slot(5-1): Link Down/Up ignored",
        "mlx5_core 0000:9a:00.0: mlx5_health_try_recover:343:(pid 80): health recovery succeeded",
        "neuron: NEURON_HW_ERR=HANG_ON_COLLECTIVES instance-id=i-0 hostname=n3",
        "nvme2: Admin Cmd(0x6), I/O Error (sct 0x3 / sc 0x71)",
        "[Hardware Error]: CPU:16 (19:11:1) MC22_STATUS[Over|CE|MiscV|-|-|CECC|-]: 0xdc2040000000011b",
        "hfi1 0000:18:00.0: hfi1_0: logical state changed to PORT_INIT (0x2)",
        "systemd[1]: Started kernel BUG at collector",
        "train[9]: NVRM: Xid (PCI:0000:1b:00): 79, copied into a log",
        "mlx5_core 0000:5c:00.0: Port module event: module 0, Cable plugged",
        "mlx5_core 0000:5c:00.0: mlx5_pcie_event:303:(pid 98): PCIe slot advertised sufficient power (75W).",
        "mlx5_core 0000:5c:00.0 mlx5_5: Port: 1 Link INIT",
        "blk_update_request: I/O error, dev loop0, sector 12",
        "I/O error, dev nbd3, sector 12",
        "CPU3: Core temperature above threshold, cpu clock throttled (total events = 1)",
        "Lustre: scratch-OST0012-osc-ffff: Connection restored to 10.0.0.1@o2ib (at 10.0.0.1@o2ib)",
        "nfs: server store-3 OK",
        "oom_reaper: reaped process 88211 (python3), now anon-rss:0kB",
    ],
)
def test_corrected_and_harmless_lines_are_no_signal(line: str) -> None:
    assert parse_kernel_line(line, 1.0) is None
