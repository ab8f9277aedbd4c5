"""The wordings of kernel and driver messages, and which fault each of them reports. Pure data and the builders that read it.

A pattern never decides what a fault is worth: signal_rules.toml does. The first pattern that fits wins, so a wording that says less
(a reset that succeeded, a corrected error) stands before one that would take it for more, and has no event.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from minder.model.evidence import SignalKind

__all__ = ["PATTERNS", "KernelPattern"]

Found = tuple[SignalKind, str | None, dict[str, Any]]  # kind, device, data
Builder = Callable[[re.Match[str]], Found | None]


@dataclass(frozen=True, slots=True)
class KernelPattern:
    """needle: text that the line must contain, for speed. event: the row of signal_rules.toml; "" for a harmless line that is known."""

    needle: str
    event: str
    pattern: re.Pattern[str]
    build: Builder

    def search(self, text: str) -> re.Match[str] | None:
        return self.pattern.search(text) if self.needle in text else None


def _row(needle: str, event: str, pattern: str, build: Builder | None = None) -> KernelPattern:
    return KernelPattern(needle, event, re.compile(pattern), build or _kernel(event))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _xid(match: re.Match[str]) -> Found:
    data = {"code": int(match["code"]), "pci": match["pci"].lower(), "pid": _number(match["pid"]), "name": match["name"]}
    return "xid", match["pci"].lower(), {key: value for key, value in data.items() if value is not None}


def _sxid(match: re.Match[str]) -> Found:
    fatal = (match["severity"] or "").lower() == "fatal"
    return "kernel", match["switch"], {"what": "sxid", "code": int(match["code"]), "fatal": fatal}


def _oom(match: re.Match[str]) -> Found:
    groups = match.groupdict()
    data: dict[str, Any] = {"what": "oom", "pid": int(match["pid"]), "cgroup": groups.get("cgroup")}
    data["name"] = match["name"] or groups.get("name_after")
    return "kernel", None, data


def _link(match: re.Match[str]) -> Found | None:
    groups = match.groupdict()
    state = match["state"].lower()
    state = {"active": "up", "plugged": "up"}.get(state, state)
    if state not in ("up", "down"):
        return None
    device, port = match["device"].rstrip(":"), groups.get("port")
    return "link", f"{device}/{port}" if port and port != "1" else device, {"state": state, "source": "kernel"}


def _machine_check_bank(match: re.Match[str]) -> Found | None:
    """Of a bank's status, bit 63 says that it is valid and bit 61 that the error was not corrected (Intel SDM 3B, 17.3.2.2; AMD PPR)."""
    status = int(match["status"], 16)
    if not status >> 63 & 1 or not status >> 61 & 1:
        return None
    return "kernel", None, {"what": "machine_check", "sign": "uncorrected"}


def _kernel(event: str) -> Builder:
    """A builder for lines whose named groups say it all: pid becomes a number, device goes to its own field."""
    what, _, sign = event.partition(".")

    def build(match: re.Match[str]) -> Found | None:
        if not what:
            return None
        groups = {key: value for key, value in match.groupdict().items() if value is not None and key != "device"}
        data: dict[str, Any] = {"what": what} | ({"sign": sign} if sign else {}) | groups
        if "pid" in data:
            data["pid"] = int(data["pid"])
        device = match.groupdict().get("device")
        return "kernel", device.lower() if device and ":" in device else device, data

    return build


_PCI = r"(?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)"
_GPU = r"(?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"  # as Xid lines write it, without the function
_HABANA = r"(?P<device>(?:hl|accel)\d+|[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.\d)"
_NICS = "mlx4_en|mlx4_core|mlx5_core|bnxt_en|ice|i40e|ixgbe|igb|igc|e1000e|tg3|ena|qede|cxgb4|hns3|fm10k|irdma|efa|ionic|iavf|sfc|nfp|bnx2x"
_DISKS = r"(?P<device>(?:nvme|sd|vd|xvd|hd|dm-|md|mmcblk|pmem|mpath)[\w-]*)"  # not a loop, floppy, optical or network block device
_ELSEWHERE = r"(?P<device>(?:rbd|nbd|drbd|loop)\d+[\w-]*)"  # blocks that a server keeps, or a file, which may lie on one
_PROCESS = r"(?P<name>[^\s:\[]+):(?P<pid>\d+)"

_GPUS = (
    _row(
        "Xid (",
        "xid",
        r"NVRM: (?:GPU\d+ )?Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+)"
        r"(?:, pid='?(?P<pid>\d+|<unknown>)'?)?(?:, name=(?P<name>[^,<]+))?",
        _xid,
    ),
    _row(
        "SXid (",
        "sxid",
        r"(?P<switch>nvidia-nvswitch\d+): SXid \(PCI:[^)]*\): (?P<code>\d+),? (?P<severity>[Nn]on-?[Ff]atal|[Ff]atal)",
        _sxid,
    ),
    _row("fallen off the bus", "gpu_lost", rf"NVRM: .*?{_GPU}"),
    _row("fallen off the bus", "gpu_lost", r"NVRM: .*fallen off the bus"),
    _row("is lost", "gpu_lost", rf"NVRM: .*?GPU.*?{_GPU}.* is lost"),
    _row("from bus", "gpu_lost", rf"amdgpu {_PCI}: .*device lost from bus"),
    _row("RmInitAdapter", "gpu.init_failed", rf"NVRM: GPU {_GPU}[.\d]*: RmInitAdapter failed"),
    _row("RmInitAdapter", "gpu.init_failed", r"RmInitAdapter failed"),
    _row("rm_init_adapter", "gpu.init_failed", rf"NVRM: GPU {_GPU}[.\d]*: rm_init_adapter failed"),
    _row("rm_init_adapter", "gpu.init_failed", r"NVRM: rm_init_adapter failed"),
    _row("NV_ERR_RESET_REQUIRED", "gpu.reset_required", rf"NVRM: .*?{_GPU}.*NV_ERR_RESET_REQUIRED"),
    _row("NV_ERR_RESET_REQUIRED", "gpu.reset_required", r"NV_ERR_RESET_REQUIRED"),
    _row("global fatal error", "gpu.reset_required", r"uvm encountered global fatal error 0x[0-9a-f]+, requiring os reboot"),
    _row("NV_ERR_GPU_IS_LOST", "gpu_lost", rf"NVRM: .*?{_GPU}.*NV_ERR_GPU_IS_LOST"),
    _row("NV_ERR_GPU_IS_LOST", "gpu_lost", r"NV_ERR_GPU_IS_LOST"),
    _row("GSP", "gpu.gsp_timeout", rf"NVRM: .*?{_GPU}.*(?:[Tt]imeout|timed out|TimedOut).*GSP"),
    _row("GSP", "gpu.gsp_timeout", r"NVRM: .*[Tt]imeout.* waiting for RPC.* GSP"),
    _row(
        "GSP",
        "gpu.gsp_timeout",
        r"NVRM: .*(?:GSP.*(?:[Hh]eartbeat|HEARTBEAT).*(?:[Tt]imed ?out|[Tt]imeout)|_kgspIsHeartbeatTimedOut|GSP-RM boot)",
    ),
    _row("amdgpu", "", r"amdgpu .*[: ]0 (?:new )?uncorrectable hardware errors"),
    _row(
        "amdgpu",
        "gpu.uncorrectable",
        rf"amdgpu {_PCI}: .*(?:[Uu]ncorrectable (?:hardware )?error|[1-9]\d* (?:new )?uncorrectable hardware errors)",
    ),
    _row("amdgpu", "", r"amdgpu .*[Pp]oison (?:is )?created"),  # a deferred error: nothing has read it
    _row("amdgpu", "gpu.uncorrectable", rf"amdgpu {_PCI}: .*(?:[Pp]oison (?:is )?consum|[Ff]atal error (?:occurred|detected))"),
    _row(
        "amdgpu",
        "gpu.bad_pages",
        rf"amdgpu {_PCI}: .*(?:bad pages?\b.*\bthreshold|RMA (?:threshold|state|status)|too many bad pages)",
    ),
    _row("amdgpu", "", r"amdgpu .*(?:GPU reset\(?\d*\)? succeeded|GPU [Rr]ecovery (?:is )?disabled)"),
    _row(
        "amdgpu",
        "gpu.reset_failed",
        rf"amdgpu {_PCI}: .*(?:GPU reset\(?\d*\)? failed|GPU reset end with ret = -\d+|GPU [Rr]ecovery [Ff]ailed|ASIC reset failed)",
    ),
    _row(
        "amdgpu",
        "gpu.reset",
        rf"amdgpu {_PCI}: .*(?:GPU reset begin|ring \S+ timeout|GPU [Rr]ecovery|(?i:mode-?\d reset)|GPU [Hh]ang"
        r"|not done with your previous command)",
    ),
    _row("amdgpu", "gpu.reset", r"amdgpu: .*(?:fence wait loop timeout|cp might be in an unrecoverable state)"),
    _row("[drm", "gpu.reset_failed", rf"(?:i915|xe) {_PCI}: .*(?:declared device \S+ as wedged|device wedged, needs recovery)"),
    _row("[drm", "gpu.reset", rf"(?:i915|xe) {_PCI}: .*(?:GPU HANG|[Ee]ngine reset|[Rr]esetting chip)"),
    _row("[drm", "gpu.reset", r"\[drm.*\] .*(?:ring \S+ timeout|GPU reset begin|GPU [Hh]ang)"),
    _row("habanalabs", "gpu.uncorrectable", rf"habanalabs {_HABANA}: .*(?:\bDERR\b|[Uu]ncorrectable|double[ -]bit)"),
    _row("habanalabs", "gpu.reset_failed", rf"habanalabs {_HABANA}: .*(?:[Ff]ailed to reset|reset failed|NOT usable|not operational)"),
    _row("habanalabs", "gpu", rf"habanalabs {_HABANA}: .*(?i:heartbeat failed)"),
    _row("habanalabs", "gpu.reset", rf"habanalabs {_HABANA}: .*Going to (?:hard[ -])?reset"),
    _row("NEURON_HW_ERR=", "gpu.uncorrectable", r"(?:(?P<device>nd\d+)\b.*)?NEURON_HW_ERR=(?:HBM|SRAM|NC)_UNCORRECTABLE_ERROR\b"),
    _row("NEURON_HW_ERR=", "gpu", r"(?:(?P<device>nd\d+)\b.*)?NEURON_HW_ERR=DMA_ERROR\b"),  # a hang of collectives is a rank's or a peer's
)
_HOST = (
    _row(
        "oom-kill:",
        "oom",
        r"oom-kill:.*?task_memcg=(?P<cgroup>[^,]*),task=(?P<name>.*?),pid=(?P<pid>\d+)",
        _oom,
    ),
    _row(
        "ut of memory",
        "oom",
        r"[Oo]ut of memory(?: \([^)]*\))?: Kill(?:ed)? process (?P<pid>\d+) \((?P<name>[^)]*)\)",
        _oom,
    ),
    _row(
        "Killed process",
        "oom",
        r"^Killed process (?P<pid>\d+)(?: \((?P<name>[^)]*)\)|, UID \d+, \((?P<name_after>[^)]*)\)).*anon-rss:",
        _oom,
    ),
    _row(
        "blocked for more than",
        "hung_task",
        r"INFO: task (?P<name>.+?):(?P<pid>\d+) (?:<\w+> )?blocked for more than (?P<seconds>\d+) seconds",
    ),
    _row("lockup", "lockup", r"BUG: soft lockup - CPU#\d+ stuck for \d+s! \[(?P<name>.+?):(?P<pid>\d+)\]"),
    _row("LOCKUP", "lockup.hard", r"(?i:watchdog: .*hard lockup)|NMI watchdog: .*LOCKUP|watchdog: .*(?:hard|HARD).* LOCKUP"),
    _row("lockup", "lockup.hard", r"(?i:watchdog: .*hard lockup)"),
    _row(" stalls on", "lockup", r"rcu: INFO: \S+ (?:self-)?detected (?:expedited )?stalls? on"),
    _row("detected stall", "lockup", r"INFO: rcu\S* (?:self-)?detected (?:expedited )?stalls?"),
    _row("Memory failure", "machine_check.memory", rf"Memory failure: 0x[0-9a-f]+: (?:Sending SIGBUS to|Killing) {_PROCESS}"),
    _row("memory corruption", "machine_check.memory", rf"MCE 0x[0-9a-f]+: Killing {_PROCESS} due to hardware memory corruption"),
    _row("Memory failure", "machine_check.memory", r"Memory failure: 0x[0-9a-f]+: .*recovery action for .*: (?:Failed|Ignored)"),
    _row("Uncorrected hardware memory error", "machine_check.memory", r"mce: .*Uncorrected hardware memory error"),
    _row("EDAC", "machine_check.memory", r"EDAC .*?\b(?P<device>MC\d+)\b.*?: [1-9]\d* UE\b"),
    _row("EDAC", "", r"EDAC "),
    _row("Hardware Error", "machine_check.uncorrected", r"\[Hardware Error\]: .*Machine Check Exception: "),
    _row(
        "Hardware Error",
        "machine_check.uncorrected",
        r"\[Hardware Error\]: .*Machine Check: \d+ Bank \d+: (?P<status>[0-9a-f]{16})\b",
        _machine_check_bank,
    ),
    _row(
        "Hardware Error",
        "machine_check.uncorrected",
        r"\[Hardware Error\]: .*(?:event severity: |Error \d+, type: |error_severity: )(?:fatal|uncorrected)",
    ),
    _row(
        "Hardware Error",
        "machine_check.recoverable",
        r"\[Hardware Error\]: .*(?:event severity: |Error \d+, type: |error_severity: )recoverable",
    ),
    _row(
        "Hardware Error",
        "machine_check.uncorrected",
        r"\[Hardware Error\]: (?:System Fatal error|Uncorrected|Uncorrectable|Fatal|.*[Uu]ncorrected (?:hardware )?error"
        r"|.*MCE.*fatal|.*PROCESSOR CONTEXT CORRUPT)",
    ),
    _row("Hardware Error", "machine_check.uncorrected", r"\[Hardware Error\]: .*MC\d+_STATUS\[[^\]]*\bUE\b"),
    _row("machine check", "machine_check.uncorrected", r"Kernel panic - not syncing: .*[Mm]achine check"),
    _row("MC", "machine_check.uncorrected", r"^mce: (?:CPU\d+: )?.*(?:[Ff]atal [Mm]achine check|[Uu]ncorrected)"),
    _row(
        "Kernel panic", "oom", r"Kernel panic - not syncing: Out of memory"
    ),  # as the site set vm.panic_on_oom: whose memory grew is not known
    _row("Kernel panic", "crash.panic", r"Kernel panic - not syncing"),
    _row("critical temperature reached", "overheated", r"\bcritical temperature reached\b"),
    _row("BUG: ", "crash", r"BUG: (?:unable to handle|kernel NULL pointer)"),
    _row("Unable to handle kernel", "crash", r"^Unable to handle kernel (?:NULL pointer|paging request|read|write|execute|access)"),
    _row("Internal error", "crash", r"^Internal error: "),
    _row("SError", "machine_check.uncorrected", r"^SError Interrupt on CPU\d+"),
    _row("Oops", "crash", r"^Oops\b"),
    _row("general protection fault", "segfault", r"traps: (?P<name>\S+)\[(?P<pid>\d+)\] general protection"),
    _row("general protection fault", "crash", r"^general protection fault"),
    _row("kernel BUG at", "crash", r"^kernel BUG at \S+:\d+"),
    _row("segfault at", "segfault", r"(?P<name>\S+)\[(?P<pid>\d+)\]: segfault at .*?(?: in (?P<library>[^\[\s]+)|$)"),
    _row("traps:", "segfault", r"traps: (?P<name>\S+)\[(?P<pid>\d+)\] (?:trap )?(?P<trap>[a-z][a-z ]*?) ip:"),
)
_BUSES = (
    _row("AER:", "", r"AER: .*(?:recovery successful|[Nn]on-?[Ff]atal|[Cc]orrect(?:ed|able) error)"),
    _row("AER:", "pcie.fatal", rf"{_PCI}: AER: (?:Multiple )?Uncorrect\w* \([Ff]atal\)"),
    _row("AER:", "pcie.fatal", rf"{_PCI}: AER: (?:device recovery failed|.*subordinate device reset failed)"),
    _row("PCIe Bus Error", "pcie.fatal", rf"{_PCI}: PCIe Bus Error: severity=Uncorrect\w* \([Ff]atal\)"),
    _row("device inaccessible", "pcie.removed", rf"{_PCI}: Unable to change power state from \S+ .*device inaccessible"),
    _row("DPC:", "pcie.dpc", rf"{_PCI}: DPC: (?:containment event|unmasked uncorrectable|RP PIO)"),
    _row(
        "pciehp",
        "pcie.removed",
        rf"{_PCI}: pciehp: Slot\([^)]*\): (?:Link Down(?!/Up ignored)|Card not present|No device found|Power fault)",
    ),
)
_NETWORK = (
    _row("mlx", "", r"mlx5_core .*Port module event: .*[Cc]able plugged"),
    _row("mlx", "nic.cable", rf"mlx[45]_core {_PCI}.*Port module event.*: module \d+, (?:Cable error|Cable unplugged)"),
    _row("mlx", "nic.temperature", rf"mlx[45]_core {_PCI}.*[Hh]igh [Tt]emperature"),
    _row("mlx", "nic.power", rf"mlx[45]_core {_PCI}.*(?:insufficient power|[Pp]ower budget exceeded)"),
    _row(
        "mlx",
        "nic.health",
        rf"mlx[45]_core {_PCI}.*(?:health poll failed|health compromised|unrecoverable|reached miss count|[Ff]atal error .*detected"
        r"|assert_var\[0\]|synd 0x[0-9a-f]+: (?!High [Tt]emp).*error|PCI reads still not working"
        r"|firmware (?:is )?not responding|FW fatal|handling bad device|failed to recover|health recovery failed"
        r"|severity\([0-3]\) (?:EMERGENCY|ALERT|CRIT\w*|ERROR))",
    ),
    _row("TX timeout", "nic.timeout", rf"(?:mlx[45]_core|mlx5e|gve|ena|bnxt_en|ice|i40e|ixgbe|efa|qede) {_PCI}.*\bTX timeout"),
    _row("Keep alive watchdog timeout", "nic.timeout", rf"(?:ena|efa) {_PCI}.*Keep alive watchdog timeout"),
    _row("Reset attempt failed", "nic.health", rf"(?:ena|efa|gve) {_PCI}.*Reset attempt failed"),
    _row("hfi1", "link", r"hfi1 [0-9a-f:.]+: (?P<device>hfi1_\d+): link_(?P<state>down) reason", _link),
    _row("mlx", "nic.timeout", rf"mlx[45]_core {_PCI}.*timeout\. Will cause a leak of a command resource"),
    _row("transmit queue", "nic.timeout", r"NETDEV WATCHDOG: (?:CPU: \d+: )?(?P<device>\S+) \(\w+\): transmit queue \d+ timed out"),
    _row("transmit queue", "nic.timeout", r"(?:(?P<device>\S+): )?NETDEV WATCHDOG: (?:CPU: \d+: )?transmit queue \d+ timed out"),
    _row(
        "bnxt_en",
        "nic.health",
        rf"bnxt_en {_PCI}.*(?:[Ff]irmware fatal|[Ff]atal firmware|FW (?:fatal|non-responsive)|[Ee]rror recovery failed)",
    ),
    _row(
        "Port:",
        "link",
        r"^(?:\w+ )?(?:[0-9a-f:.]+:? )?(?P<device>\w+_\d+|\w+): Port: (?P<port>\d+) Link (?P<state>DOWN|ACTIVE|INIT\w*|ARM\w*)",
        _link,
    ),
    _row("link status definitely", "link", r"\(slave (?P<device>\S+)\): link status definitely (?P<state>up|down)", _link),
    _row("link status definitely", "link", r"link status definitely (?P<state>up|down) for interface (?P<device>[^\s,]+)", _link),
    _row(
        "logical state changed",
        "link",
        r"\b(?P<device>(?:hfi1|qib)_\d+): .*logical state changed to (?:PORT_)?(?P<state>DOWN|ACTIVE)",
        _link,
    ),
    _row("ink is ", "link", r"^\w+ [0-9a-f:.]{7,} (?P<device>[A-Za-z][\w.-]*): (?:NIC )?[Ll]ink is (?P<state>[Uu]p|[Dd]own)\b", _link),
    _row(
        "ink ",
        "link",
        rf"^(?:{_NICS})\b.*?(?P<device>[A-Za-z][\w.-]*(?<!port))?:? (?:NIC )?[Ll]ink (?:is )?(?P<state>up|down|Up|Down)\b",
        _link,
    ),
)
_STORAGE = (
    *(
        _row(marker, "storage_server", rf"(?:\((?:device )?|on device ){_ELSEWHERE}\b")
        for marker in (
            "EXT4-fs error",
            "EXT4-fs warning",
            "EXT4-fs (",
            "Aborting journal",
            "XFS (",
            "BTRFS",
            "Remounting filesystem read-only",
        )
    ),
    _row("EXT4-fs error", "filesystem", r"EXT4-fs error \(device (?P<device>[^)]+)\)"),
    _row("EXT4-fs warning", "filesystem", r"EXT4-fs warning \(device (?P<device>[^)]+)\): ext4_end_bio:.*I/O error"),
    _row("EXT4-fs (", "filesystem", r"EXT4-fs \((?P<device>[^)]+)\): shut down requested"),
    _row("Aborting journal", "filesystem", r"^Aborting journal on device (?P<device>[\w-]+)"),
    _row("XFS (", "filesystem", r"XFS \((?P<device>[^)]+)\): .*(?i:I/O error|corruption|shut(?:ting)? ?down)"),
    _row("BTRFS", "filesystem", r"BTRFS (?:error|critical) \(device (?P<device>[^):]+)"),
    _row("Remounting filesystem read-only", "filesystem", r"\((?P<device>[^)]+)\): Remounting filesystem read-only"),
    _row(" @ LBA ", "disk", r"(?P<device>nvme\w+): .* @ LBA .*\(sct 0x2 /"),  # status code type 2: the media
    _row("Sense: ", "disk", r"\[(?P<device>sd\w+)\].*Sense: (?:Unrecovered read error|Write error|.*[Hh]ardware)"),
    _row("critical target error", "disk", rf"critical target error, dev {_DISKS}\b"),
    _row("Disk failure on", "disk", rf"md/\S+: Disk failure on {_DISKS}"),
    _row("I/O error", "disk", rf"(?:I/O|medium|target) error,? (?:on )?dev {_DISKS}\b"),
    _row("medium error", "disk", rf"critical medium error, dev {_DISKS}\b"),
    _row("nvme", "", r"nvme nvme\d+: .*timeout, completion polled"),
    _row(
        "nvme",
        "disk.lost",
        r"nvme (?P<device>nvme\d+): (?:Disabling device after reset failure|.*[Rr]emoving after probe failure)",
    ),
    _row(  # over a fabric, which names the kind of its request, and nothing that it does about it: the other end does not answer
        "nvme",
        "storage_server",
        r"nvme nvme\d+: (?:.*timeout\s*$|.*\btimeout\b.*\btype \d|.*\btype \d+ opcode .*timeout|starting error recovery|[Rr]econnecting in "
        r"|[Ff]ailed reconnect attempt|failed to connect socket|.*connect.* failed|failed nvme_keep_alive)",
    ),
    _row("nvme", "disk.timeout", r"nvme (?P<device>nvme\d+): (?:.*timeout|.*[Aa]bort status|Device not ready; aborting)"),
    _row("nvme", "disk", r"nvme (?P<device>nvme\d+): (?:controller is down|frozen state error detected)"),
    _row("not responding", "storage_server", r"nfs: server (?P<server>\S+) not responding"),
    _row(
        "LustreError", "storage_server.evicted", r"LustreError: .*?(?:(?P<server>\S+-(?:OST|MDT)[0-9a-f]+)\S*: )?This client was evicted by"
    ),
    _row("Lustre", "storage_server", r"Lustre(?:Error)?: .*Connection to (?P<server>\S+) (?:\(at [^)]*\) )?was lost"),
    _row("LustreError", "storage_server", r"LustreError: .*operation \w+ to node \S+ failed: rc = -(?:19|107|108|110|113)\b"),
    _row("expelled", "storage_server.evicted", r"(?i:mmfs|gpfs).*\bexpel(?:led)?\b"),
    _row("evicted", "storage_server.evicted", r"(?i:mmfs|gpfs|beegfs|ceph).*\bevicted\b"),
    _row("Deadman ", "storage_server.evicted", r"(?i:mmfs|gpfs).*Deadman Switch timer .*expired"),
    _row(
        "ceph",
        "storage_server",
        r"(?:libceph|ceph): .*(?:\bmon\d+ .*session lost|\bosd\d+ .*(?:down\b|socket error)"
        r"|\bmds\d+ (?:hung|rejected session|reconnect denied))",
    ),
)
_REST = (_row("nvidia-peermem", "peermem", r"nvidia-peermem .*ERROR"),)

PATTERNS: tuple[KernelPattern, ...] = (*_GPUS, *_HOST, *_BUSES, *_NETWORK, *_STORAGE, *_REST)
