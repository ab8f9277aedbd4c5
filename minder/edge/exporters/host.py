"""CPU, memory and disk of the machine: a whole host, one cgroup of it, or one tree of processes.

A machine that shares its host with others (a container, a lab machine) must never export the host's numbers as its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import psutil

from minder.edge.exporters.cgroup import Cgroup, CgroupUse, parse_pressure
from minder.edge.exporters.procfs import read_stat, read_text
from minder.edge.exporters.reading import Reading

__all__ = ["CgroupExporter", "HostExporter", "TreeExporter"]


def _disk(reading: Reading, path: str) -> None:
    try:
        usage = os.statvfs(path)
    except OSError:
        return
    used = usage.f_blocks - usage.f_bfree
    if used + usage.f_bavail > 0:
        reading.gauge("disk_usage_ratio", used / (used + usage.f_bavail))


class HostExporter:
    """The host as /proc shows it."""

    def __init__(self, disk: str = "/") -> None:
        self._disk = disk
        self._last: tuple[float, float] | None = None  # busy and total CPU seconds

    def read(self, now_s: float) -> Reading:
        reading = Reading()
        times = psutil.cpu_times()
        total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        busy_s = total_s - times.idle - getattr(times, "iowait", 0.0)
        if self._last is not None and total_s > self._last[1]:
            reading.gauge("cpu_usage_ratio", min(1.0, max(0.0, (busy_s - self._last[0]) / (total_s - self._last[1]))))
        self._last = (busy_s, total_s)
        memory = psutil.virtual_memory()
        reading.gauge("memory_usage_ratio", 1.0 - memory.available / memory.total)
        _disk(reading, self._disk)
        self._pressure(reading)
        return reading

    @staticmethod
    def _pressure(reading: Reading) -> None:
        for resource in ("cpu", "memory", "io"):
            text = read_text(f"/proc/pressure/{resource}")
            if text:
                reading.counter(f"{resource}_pressure_seconds", parse_pressure(text))
        counts = read_text("/proc/vmstat") or ""
        at = counts.find("\noom_kill ")
        if at >= 0:
            reading.counter("oom_kills", int(counts[at + 10 : counts.find("\n", at + 1)]))


class CgroupExporter:
    """A machine that is one cgroup. CPU is against its quota where it has one, else against all cores."""

    def __init__(self, cgroup: Cgroup, disk: str = "/") -> None:
        self._cgroup = cgroup
        self._disk = disk
        self._cores = os.cpu_count() or 1
        self._memory_bytes = psutil.virtual_memory().total
        self._last: tuple[float, CgroupUse] | None = None

    def read(self, now_s: float) -> Reading:
        reading = Reading()
        use = self._cgroup.read()
        if self._last is not None:
            self._rates(reading, use, self._last[1], now_s - self._last[0])
        self._last = (now_s, use)
        if use.memory_bytes is not None:
            limit_bytes = use.memory_limit_bytes or self._memory_bytes
            reading.gauge("memory_usage_ratio", min(1.0, use.memory_bytes / limit_bytes))
        reading.counter("oom_kills", use.oom_kills)
        for resource, waited_s in self._cgroup.pressure():
            reading.counter(f"{resource}_pressure_seconds", waited_s)
        _disk(reading, self._disk)
        return reading

    def _rates(self, reading: Reading, use: CgroupUse, before: CgroupUse, passed_s: float) -> None:
        if use.cpu_s is not None and before.cpu_s is not None and passed_s > 0:
            cores = min(use.quota_cores or self._cores, self._cores)
            reading.gauge("cpu_usage_ratio", min(1.0, max(0.0, (use.cpu_s - before.cpu_s) / passed_s / cores)))
        if use.periods is None or use.throttled_periods is None or before.periods is None or before.throttled_periods is None:
            return
        periods, throttled = use.periods - before.periods, use.throttled_periods - before.throttled_periods
        if periods >= 0 and throttled >= 0:
            reading.gauge("cpu_throttled_ratio", min(1.0, throttled / periods) if periods else 0.0)


class TreeExporter:
    """A machine that is a tree of processes. Processes that end take their CPU seconds with them, without a negative rate."""

    def __init__(self, list_processes: Callable[[], Sequence[int]], disk: str = "/") -> None:
        self._list_processes = list_processes
        self._disk = disk
        self._cores = os.cpu_count() or 1
        self._memory_bytes = psutil.virtual_memory().total
        self._last: tuple[float, dict[int, float]] | None = None

    def read(self, now_s: float) -> Reading:
        reading = Reading()
        stats = [stat for stat in map(read_stat, self._list_processes()) if stat is not None]
        if not stats:
            self._last = None
            return reading
        cpu_s = {stat.pid: stat.cpu_s for stat in stats}
        if self._last is not None and now_s > self._last[0]:
            used_s = sum(max(0.0, seconds - self._last[1].get(pid, 0.0)) for pid, seconds in cpu_s.items())
            reading.gauge("cpu_usage_ratio", min(1.0, used_s / (now_s - self._last[0]) / self._cores))
        self._last = (now_s, cpu_s)
        reading.gauge("memory_usage_ratio", min(1.0, sum(stat.rss_bytes for stat in stats) / self._memory_bytes))
        _disk(reading, self._disk)
        return reading
