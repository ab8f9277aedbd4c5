"""A machine's cgroup, in version 1 (one folder per controller), version 2 (one folder), or both side by side (hybrid).

Quotas and limits go to whichever version holds the controller; killing uses version 2's cgroup.kill where there is one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from minder.model.errors import LabError
from minder.simulate.lab.processes import end_processes

__all__ = ["Cgroup", "CgroupLayout", "find_layout"]

_V1_WANTED = ("cpu", "cpuacct", "memory", "freezer")
_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """Where this machine keeps its cgroups: version 1 folders by controller, and the version 2 folder with its controllers."""

    v1: Mapping[str, Path]
    v2: Path | None
    v2_controllers: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """v1, v2, hybrid or none."""
        if self.v1:
            return "v1" if self.v2 is None else "hybrid"
        return "none" if self.v2 is None else "v2"

    def folders(self, name: str) -> list[Path]:
        """All folders that together are the cgroup `name`; controllers mounted together share one."""
        roots = list(dict.fromkeys(self.v1.values()))
        return [root / name for root in ([*roots, self.v2] if self.v2 else roots)]

    def names(self, prefix: str) -> list[str]:
        """The cgroups that exist under a name prefix, in any hierarchy."""
        return sorted({path.name for root in self.folders("") for path in root.glob(f"{prefix}*") if path.is_dir()})


def find_layout(mounts: Path = Path("/proc/self/mounts")) -> CgroupLayout:
    """Read the layout from the mount table; controllers of version 2 from its cgroup.controllers."""
    v1: dict[str, Path] = {}
    v2: Path | None = None
    try:
        lines = mounts.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for _, folder, kind, options, *_ in (line.split() for line in lines):
        if kind == "cgroup2":
            v2 = v2 or Path(folder)
        elif kind == "cgroup":
            v1.update({name: Path(folder) for name in options.split(",") if name in _V1_WANTED and name not in v1})
    controllers = _read(v2 / "cgroup.controllers").split() if v2 else []
    return CgroupLayout(v1, v2, frozenset(controllers))


class Cgroup:
    """One machine's cgroup. Methods raise LabError where the kernel refuses, naming file and reason."""

    def __init__(self, name: str, layout: CgroupLayout) -> None:
        self.name = name
        self.layout = layout

    def create(self) -> None:
        if self.layout.v2 and (wanted := {"cpu", "memory"} & self.layout.v2_controllers):
            enabled = set(_read(self.layout.v2 / "cgroup.subtree_control").split())
            for controller in sorted(wanted - enabled):
                # Refused where this cgroup holds processes itself: then there are no quotas, but membership and kill still work.
                with contextlib.suppress(LabError):
                    _write(self.layout.v2 / "cgroup.subtree_control", f"+{controller}")
        for folder in self.layout.folders(self.name):
            try:
                folder.mkdir(exist_ok=True)
            except OSError as error:
                raise LabError(f"cannot create cgroup {folder}: {error.strerror}") from error

    def member_files(self) -> list[Path]:
        """The files that a process writes its pid into to join."""
        return [folder / "cgroup.procs" for folder in self.layout.folders(self.name)]

    def pids(self) -> list[int]:
        """Everything that lives in it."""
        found = {int(pid) for path in self.member_files() for pid in _read(path).split()}
        return sorted(found - {0})

    def kill(self, deadline_s: float = 5.0) -> bool:
        """SIGKILL all of it and wait until it is empty; False at the deadline."""
        if self.layout.v2 is not None:
            # Absent before Linux 5.14.
            with contextlib.suppress(LabError):
                _write(self.layout.v2 / self.name / "cgroup.kill", "1")
        return end_processes(self.pids, deadline_s)

    def set_cpu_quota(self, cores: float | None) -> None:
        """Limit it to so many cores (at least 0.01); None lifts the limit."""
        quota_us = -1 if cores is None else max(1000, round(cores * _PERIOD_US))
        if "cpu" in self.layout.v1:
            folder = self.layout.v1["cpu"] / self.name
            _write(folder / "cpu.cfs_period_us", str(_PERIOD_US))
            _write(folder / "cpu.cfs_quota_us", str(quota_us))
        else:
            _write(self._v2() / "cpu.max", f"{'max' if cores is None else quota_us} {_PERIOD_US}")

    def set_memory_limit(self, limit_bytes: int | None) -> None:
        """Limit its memory, swap included where the kernel counts swap; None lifts the limit."""
        if "memory" not in self.layout.v1:
            _write(self._v2() / "memory.max", "max" if limit_bytes is None else str(limit_bytes))
            with contextlib.suppress(LabError):
                _write(self._v2() / "memory.swap.max", "max" if limit_bytes is None else "0")
            return
        folder, value = self.layout.v1["memory"] / self.name, str(-1 if limit_bytes is None else limit_bytes)
        files = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]  # the first may never exceed the second
        for file in files if limit_bytes is not None else reversed(files):
            if (folder / file).exists():
                _write(folder / file, value)

    def memory_bytes(self) -> int:
        """Memory charged to it now, page cache included."""
        if "memory" in self.layout.v1:
            return int(_read(self.layout.v1["memory"] / self.name / "memory.usage_in_bytes") or 0)
        return int(_read(self._v2() / "memory.current") or 0)

    def oom_kills_file(self) -> Path:
        """The file whose line `oom_kill N` counts the kernel's kills in it."""
        if "memory" in self.layout.v1:
            return self.layout.v1["memory"] / self.name / "memory.oom_control"
        return self._v2() / "memory.events"

    def oom_kills(self) -> int:
        return _field(self.oom_kills_file(), "oom_kill")

    def remove(self, deadline_s: float = 3.0) -> None:
        """Delete it; what was killed a moment ago may hold it for some milliseconds. Raises LabError at the deadline."""
        end_s = time.monotonic() + deadline_s
        for folder in self.layout.folders(self.name):
            while folder.exists():
                try:
                    folder.rmdir()
                except OSError as error:
                    if time.monotonic() > end_s:
                        raise LabError(
                            f"cannot remove cgroup {folder}: {error.strerror}; end its processes and run `minder lab clean`"
                        ) from error
                    time.sleep(0.01)

    def _v2(self) -> Path:
        if self.layout.v2 is None:
            raise LabError(f"cgroup {self.name}: this machine has no controller for that")
        return self.layout.v2 / self.name


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {value} to {path}: {error.strerror}") from error


def _field(path: Path, name: str) -> int:
    for line in _read(path).splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return 0
