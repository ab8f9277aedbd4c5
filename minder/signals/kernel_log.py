"""Kernel log lines as signals. Pure: a line in, a signal or nothing out.

Signals of kind `xid` carry data {code, pci, pid, name}; of kind `link` {state, source: "kernel"}; of kind `kernel` {what, ...} where
what is oom {pid, cgroup, name}, hung_task, lockup, machine_check, pcie, nic, disk, filesystem, storage_server, segfault, peermem,
sxid {code, fatal}, gpu_lost or crash.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from minder.clock import parse_time
from minder.types import Signal, SignalKind

__all__ = ["KernelLine", "parse_kernel_line", "parse_kmsg_record", "split_log_line"]

Found = tuple[SignalKind, str | None, dict[str, Any]]  # kind, device, data


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One record of /dev/kmsg."""

    time_s: float
    since_boot_s: float
    message: str


def parse_kmsg_record(record: str, boot_s: float) -> KernelLine | None:
    """ "6,3964,206764307,-;text", then continuation lines that start with a space. boot_s: unix time of the kernel's zero.

    >>> parse_kmsg_record("6,1,2500000,-;hello", 100.0).time_s
    102.5
    """
    head, _, text = record.partition(";")
    fields = head.split(",")
    if len(fields) < 3 or not fields[2].isdigit() or not text:
        return None
    since_boot_s = int(fields[2]) / 1e6
    return KernelLine(boot_s + since_boot_s, since_boot_s, text.split("\n", 1)[0])


_ISO = re.compile(r"^(?:\w+\s*:\w+\s*:\s*)?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[,.]\d+(?:Z|[+-]\d\d:?\d\d))\s+(.*)")
_HUMAN = re.compile(r"^\[(\w{3} \w{3}\s+\d+ \d\d:\d\d:\d\d \d{4})\]\s?(.*)")
_BARE = re.compile(r"^(?:<\d+>)?\[\s*\d+\.\d+\]\s?(.*)")


def split_log_line(line: str) -> tuple[float | None, str]:
    """A line of dmesg (plain, -T, or --time-format=iso), or of a pstore dump, as (unix seconds if it tells, message)."""
    line = line.rstrip("\n")
    if found := _ISO.match(line):
        return parse_time(found[1].replace(",", ".")), found[2]
    if found := _HUMAN.match(line):
        try:
            stamp = datetime.strptime(found[1], "%a %b %d %H:%M:%S %Y")
        except ValueError:
            return None, found[2]
        return stamp.replace(tzinfo=UTC).timestamp(), found[2]
    found = _BARE.match(line)
    return None, found[1] if found else line


def parse_kernel_line(message: str, time_s: float, machine: str | None = None) -> Signal | None:
    """The signal in a message without its time stamp, or None for a line of no interest.

    >>> parse_kernel_line("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 1.0).data["code"]
    79
    """
    for needle, pattern, build in _RULES:
        if needle not in message:
            continue
        match = pattern.search(message)
        if match is not None:
            kind, device, data = build(match)
            return Signal(time_s, kind, machine, message[:500], device=device, pid=data.get("pid"), data=data)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None


def _xid(match: re.Match[str]) -> Found:
    data = {"code": int(match["code"]), "pci": match["pci"].lower(), "pid": _number(match["pid"]), "name": match["name"]}
    return "xid", match["pci"].lower(), {key: value for key, value in data.items() if value is not None}


def _sxid(match: re.Match[str]) -> Found:
    data = {"what": "sxid", "code": int(match["code"]), "fatal": match["severity"].lower() == "fatal"}
    return "kernel", match["switch"], data


def _oom(match: re.Match[str]) -> Found:
    groups = match.groupdict()
    return "kernel", None, {"what": "oom", "pid": int(match["pid"]), "cgroup": groups.get("cgroup"), "name": match["name"]}


def _link(match: re.Match[str]) -> Found:
    return "link", match["device"].rstrip(":"), {"state": match["state"].lower(), "source": "kernel"}


def _kernel(what: str) -> Callable[[re.Match[str]], Found]:
    """A builder for lines whose named groups say it all: pid becomes a number, device goes to its own field."""

    def build(match: re.Match[str]) -> Found:
        data: dict[str, Any] = {key: value for key, value in match.groupdict().items() if value is not None and key != "device"}
        if "pid" in data:
            data["pid"] = int(data["pid"])
        return "kernel", match.groupdict().get("device"), {"what": what, **data}

    return build


_NICS = "mlx4_en|mlx5_core|bnxt_en|ice|i40e|ixgbe|igb|igc|e1000e|tg3|ena|qede|cxgb4|hns3|fm10k"
_RULES: tuple[tuple[str, re.Pattern[str], Callable[[re.Match[str]], Found]], ...] = (
    # A cheap needle that the line must contain, the pattern, and what is made of it. The first that fits wins.
    (
        "Xid (",
        re.compile(
            r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)[^)]*\): (?P<code>\d+)"
            r"(?:, pid='?(?P<pid>\d+|<unknown>)'?)?(?:, name=(?P<name>[^,<]+))?"
        ),
        _xid,
    ),
    ("SXid (", re.compile(r"(?P<switch>nvidia-nvswitch\d+): SXid \(PCI:[^)]*\): (?P<code>\d+), (?P<severity>Non-fatal|Fatal)"), _sxid),
    ("fallen off the bus", re.compile(r"NVRM: .*?(?P<device>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})"), _kernel("gpu_lost")),
    ("oom-kill:", re.compile(r"oom-kill:.*?task_memcg=(?P<cgroup>[^,]*),task=(?P<name>.*?),pid=(?P<pid>\d+)"), _oom),
    ("Killed process", re.compile(r"[Oo]ut of memory: Killed process (?P<pid>\d+) \((?P<name>[^)]*)\)"), _oom),
    (
        "blocked for more than",
        re.compile(r"INFO: task (?P<name>.+?):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds"),
        _kernel("hung_task"),
    ),
    ("lockup", re.compile(r"BUG: soft lockup - CPU#\d+ stuck for \d+s! \[(?P<name>.+?):(?P<pid>\d+)\]"), _kernel("lockup")),
    ("LOCKUP", re.compile(r"(?:NMI watchdog|watchdog): .*(?:hard|HARD).* LOCKUP"), _kernel("lockup")),
    ("[Hardware Error]", re.compile(r"\[Hardware Error\]: (?!.*[Cc]orrected error, no action)"), _kernel("machine_check")),
    (
        "AER:",
        re.compile(r"(?P<device>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d): AER: (?:Multiple )?Uncorrect\w*(?: \((?P<severity>[^)]*)\))?"),
        _kernel("pcie"),
    ),
    (
        "mlx5",
        re.compile(
            r"mlx5_core (?P<device>[0-9a-f:.]+)\b.*(?:health poll failed|health compromised|unrecoverable|"
            r"timeout\. Will cause a leak of a command resource)"
        ),
        _kernel("nic"),
    ),
    ("link status definitely", re.compile(r"\(slave (?P<device>\S+)\): link status definitely (?P<state>up|down)"), _link),
    (
        "ink ",
        re.compile(rf"^(?:{_NICS})\b.*?(?P<device>[A-Za-z][\w.-]*(?<!port))?:? (?:NIC )?[Ll]ink (?:is )?(?P<state>up|down|Up|Down)\b"),
        _link,
    ),
    ("EXT4-fs error", re.compile(r"EXT4-fs error \(device (?P<device>[^)]+)\)"), _kernel("filesystem")),
    ("XFS (", re.compile(r"XFS \((?P<device>[^)]+)\): .*(?:I/O error|[Cc]orruption|shut(?:ting)? ?down)"), _kernel("filesystem")),
    ("Remounting filesystem read-only", re.compile(r"\((?P<device>[^)]+)\): Remounting filesystem read-only"), _kernel("filesystem")),
    ("I/O error", re.compile(r"I/O error,? (?:on )?dev (?P<device>[\w-]+)"), _kernel("disk")),
    (
        "nvme",
        re.compile(r"nvme (?P<device>nvme\d+): (?:.*timeout|controller is down|.*[Rr]emoving after probe failure|.*[Aa]bort status)"),
        _kernel("disk"),
    ),
    ("not responding", re.compile(r"nfs: server (?P<server>\S+) not responding"), _kernel("storage_server")),
    ("segfault at", re.compile(r"(?P<name>\S+)\[(?P<pid>\d+)\]: segfault at .*?(?: in (?P<library>[^\[\s]+)|$)"), _kernel("segfault")),
    ("nvidia-peermem", re.compile(r"nvidia-peermem .*ERROR"), _kernel("peermem")),
    ("BUG: unable to handle", re.compile(r"BUG: unable to handle"), _kernel("crash")),
    ("Kernel panic", re.compile(r"Kernel panic - not syncing"), _kernel("crash")),
)
