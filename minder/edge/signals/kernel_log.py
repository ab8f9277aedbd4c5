"""Kernel log lines as signals. Pure: a line in, a signal or nothing out.

Signals of kind `xid` carry data {code, pci, pid, name}; of kind `link` {state, source: "kernel"}; of kind `kernel` {what, sign, ...},
where what is coarse (gpu, nic, pcie, machine_check, ...) and sign, if there is one, says which fault of that part it is. What a signal
means stands in signal_rules.toml, under "what.sign" or "what".

Errors that the hardware corrected, or that it calls recoverable and harmless, are no signal: nothing failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from minder.edge.signals.kernel_patterns import PATTERNS
from minder.model.clock import parse_time
from minder.model.evidence import Signal

__all__ = ["KernelLine", "parse_kernel_line", "parse_kmsg_record", "split_log_line"]


@dataclass(frozen=True, slots=True)
class KernelLine:
    """One record of /dev/kmsg."""

    time_s: float
    since_boot_s: float
    message: str


def parse_kmsg_record(record: str, boot_s: float) -> KernelLine | None:
    """ "6,3964,206764307,-;text", then continuation lines that start with a space. boot_s: unix time of the kernel's zero. None for what is
    no record. The facility is not looked at: a site that tries its alarms writes a driver's line there itself.

    >>> parse_kmsg_record("6,1,2500000,-;hello", 100.0).time_s
    102.5
    """
    head, _, text = record.partition(";")
    fields = head.split(",")
    if len(fields) < 3 or not (fields[0].isdigit() and fields[2].isdigit()) or not text:
        return None
    since_boot_s = int(fields[2]) / 1e6
    return KernelLine(boot_s + since_boot_s, since_boot_s, text.split("\n", 1)[0])


_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[,.]\d+)?(?:Z|[+-]\d\d:?\d\d)"
_LEVEL = r"(?:<\d+>)?(?:\w+\s*:\w+\s*:\s*)?"
_SINCE_BOOT = r"\[\s*\d+\.\d+\](?:\s?\[\s*[TC]\d+\])?"  # the second: who wrote it (CONFIG_PRINTK_CALLER)
_SYSLOG = re.compile(  # syslog's and the journal's: a time, the host, "kernel:"
    rf"^(?:<\d+>)?(?:(?P<iso>{_STAMP})|(?P<unix>\d{{9,}}\.\d+)|[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|{_SINCE_BOOT})"
    r" [^\s:]+ (?:(?P<kernel>kernel)(?:\[\d+\])?|[\w.@/-]+\[\d+\]): ?(?P<message>.*)"
)
_USERS = re.compile(r"^[\w.@/-]+\[\d+\]: (?!segfault at|bad frame|unhandled|undefined)")  # another program's, with its pid
_ISO = re.compile(rf"^{_LEVEL}({_STAMP})\s+(.*)")
_HUMAN = re.compile(rf"^{_LEVEL}\[(\w{{3}} \w{{3}}\s+\d+ \d\d:\d\d:\d\d \d{{4}})\]\s?(.*)")
_BARE = re.compile(rf"^{_LEVEL}{_SINCE_BOOT}\s?(.*)")
_RECORD = re.compile(r"^\d+,\d+,\d+,[^;]*;(.*)")
_ESCAPED = re.compile(r"\\x0[aAdD9]")  # /dev/kmsg and its copies write a message's own line ends like this


def split_log_line(line: str) -> tuple[float | None, str]:
    """A line of dmesg (plain, -T, -x, or --time-format=iso), of /dev/kmsg, syslog, the journal or a pstore dump, as (unix seconds if it has
    them, message). The message is "" where syslog says that another program wrote it.

    >>> split_log_line("Mar 02 06:05:00 gpu-17 kernel: [  812.345678] NVRM: GPU at PCI:0000:1b:00 has fallen off the bus.")
    (None, 'NVRM: GPU at PCI:0000:1b:00 has fallen off the bus.')
    """
    line = line.rstrip("\r\n")
    if found := _SYSLOG.match(line):
        time_s = parse_time(found["iso"].replace(",", ".")) if found["iso"] else float(found["unix"]) if found["unix"] else None
        bare = _BARE.match(found["message"])
        return time_s, "" if not found["kernel"] else bare[1] if bare else found["message"]
    if found := _ISO.match(line):
        return parse_time(found[1].replace(",", ".")), found[2]
    if found := _HUMAN.match(line):
        try:
            stamp = datetime.strptime(found[1], "%a %b %d %H:%M:%S %Y")
        except ValueError:
            return None, found[2]
        return stamp.replace(tzinfo=UTC).timestamp(), found[2]
    found = _BARE.match(line) or _RECORD.match(line)
    return None, found[1] if found else line


def parse_kernel_line(message: str, time_s: float, machine: str | None = None) -> Signal | None:
    """The signal in a message without its time stamp, or None for a line of no interest.

    >>> parse_kernel_line("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", 1.0).data["code"]
    79
    """
    text = "" if _USERS.match(message) else _ESCAPED.sub(" ", message)
    pattern, match = next(((item, match) for item in PATTERNS if (match := item.search(text)) is not None), (None, None))
    found = None if pattern is None or match is None else pattern.build(match)
    if found is None:
        return None
    kind, device, data = found
    return Signal(time_s, kind, machine, message[:500], device=device, pid=data.get("pid"), data=data)
