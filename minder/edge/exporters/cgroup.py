"""A machine that is a cgroup: its own CPU and memory, in either hierarchy (or both at once, as many systems mount them)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minder.edge.exporters.procfs import read_text
from minder.model.errors import ConfigError

__all__ = ["Cgroup", "CgroupUse", "parse_pressure"]

_UNLIMITED_BYTES = 1 << 60  # v1 writes a huge number where there is no limit


@dataclass(frozen=True, slots=True)
class CgroupUse:
    """Totals and limits at one instant; None is "no data". throttled_s is summed over the CPUs."""

    cpu_s: float | None
    quota_cores: float | None
    periods: int | None
    throttled_periods: int | None
    memory_bytes: int | None
    memory_limit_bytes: int | None
    oom_kills: int | None


class Cgroup:
    """One named cgroup under `root` (/sys/fs/cgroup). Raises ConfigError if no controller has it.

    v1: root/cpuacct/NAME, root/cpu/NAME, root/memory/NAME. v2: root/NAME or root/unified/NAME.
    """

    def __init__(self, name: str, root: Path = Path("/sys/fs/cgroup")) -> None:
        self.name = name.strip("/")
        self.root = root
        self._v1 = {part: root / part / self.name for part in ("cpuacct", "cpu", "memory")}
        self._v2 = (root / self.name, root / "unified" / self.name)
        if not any(path.is_dir() for path in (*self._v1.values(), *self._v2)):
            raise ConfigError(f"cgroup {name!r} is not under {root}: create it before the agent starts, or leave --cgroup out")

    def read(self) -> CgroupUse:
        return CgroupUse(
            cpu_s=self._cpu_s(),
            quota_cores=self._quota_cores(),
            periods=self._cpu_stat("nr_periods"),
            throttled_periods=self._cpu_stat("nr_throttled"),
            memory_bytes=self._memory_bytes(),
            memory_limit_bytes=self.memory_limit_bytes(),
            oom_kills=self._oom_kills(),
        )

    def processes_file(self) -> Path | None:
        """The list of the cgroup's processes, from the first hierarchy that has it and is not empty."""
        paths = [path / "cgroup.procs" for path in (*self._v1.values(), *self._v2) if path.is_dir()]
        return next((path for path in paths if read_text(str(path))), paths[0] if paths else None)

    def pressure(self) -> Iterator[tuple[str, float]]:
        """(resource, seconds so far in which some task waited for it), where the kernel gives it (v2)."""
        for resource in ("cpu", "memory", "io"):
            for path in self._v2:
                text = read_text(str(path / f"{resource}.pressure"))
                waited_s = parse_pressure(text) if text else None
                if waited_s is not None:
                    yield resource, waited_s
                    break

    def _cpu_s(self) -> float | None:
        text = read_text(str(self._v1["cpuacct"] / "cpuacct.usage"))
        if text is not None:
            return int(text) / 1e9
        usage_us = self._find(self._v2, "cpu.stat", "usage_usec")
        return None if usage_us is None else usage_us / 1e6

    def _quota_cores(self) -> float | None:
        quota = read_text(str(self._v1["cpu"] / "cpu.cfs_quota_us"))
        period = read_text(str(self._v1["cpu"] / "cpu.cfs_period_us"))
        if quota is not None and period is not None:
            return int(quota) / int(period) if int(quota) > 0 else None
        for path in self._v2:
            fields = (read_text(str(path / "cpu.max")) or "").split()
            if len(fields) == 2 and fields[0] != "max":
                return int(fields[0]) / int(fields[1])
        return None

    def _cpu_stat(self, field: str) -> int | None:
        return self._find((self._v1["cpu"], *self._v2), "cpu.stat", field)

    def _memory_bytes(self) -> int | None:
        """Without the page cache that the kernel would give back at once."""
        for folder, used, cached in ((self._v1["memory"], "memory.usage_in_bytes", "total_inactive_file"), *self._v2_memory()):
            text = read_text(str(folder / used))
            if text is not None:
                return max(0, int(text) - (self._find((folder,), "memory.stat", cached) or 0))
        return None

    def _v2_memory(self) -> list[tuple[Path, str, str]]:
        return [(path, "memory.current", "inactive_file") for path in self._v2]

    def memory_limit_bytes(self) -> int | None:
        paths = [self._v1["memory"] / "memory.limit_in_bytes", *(path / "memory.max" for path in self._v2)]
        for path in paths:
            text = (read_text(str(path)) or "").strip()
            if text.isdigit():
                return int(text) if int(text) < _UNLIMITED_BYTES else None
        return None

    def shared_bytes(self) -> int:
        """Files in memory and shared memory, which are part of what it uses."""
        return self._find((self._v1["memory"],), "memory.stat", "total_shmem") or self._find(self._v2, "memory.stat", "shmem") or 0

    def _oom_kills(self) -> int | None:
        found = self._find((self._v1["memory"],), "memory.oom_control", "oom_kill")
        return found if found is not None else self._find(self._v2, "memory.events", "oom_kill")

    @staticmethod
    def _find(folders: tuple[Path, ...], file: str, field: str) -> int | None:
        """One "name value" line of the first folder's file that has it."""
        for folder in folders:
            for line in (read_text(str(folder / file)) or "").splitlines():
                name, _, value = line.partition(" ")
                if name == field:
                    return int(value)
        return None


def parse_pressure(text: str) -> float | None:
    """Seconds so far in which at least one task waited (PSI "some").

    >>> parse_pressure("some avg10=1.18 avg60=1.34 avg300=0.43 total=8737854")
    8.737854
    """
    for line in text.splitlines():
        if line.startswith("some ") and "total=" in line:
            return int(line.rpartition("total=")[2]) / 1e6
    return None
