"""Which processes of this machine belong to a training job: named by the launcher, by the user, or found.

The launcher's registry is `<run_dir>/jobs/<job>.json`. A job that minder did not start is found by the environment
that torchrun, Slurm scripts and the like give their processes (RANK and WORLD_SIZE).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from minder.edge.exporters.procfs import is_alive, list_pids, read_bytes, read_environment, read_stat, read_tree

__all__ = ["JobProcess", "JobTable", "default_run_dir"]

_SCAN_EVERY_S = 15.0
_TREE_EVERY_S = 2.0
_FULL_SCAN_EVERY = 4  # a known process is looked at again every fourth scan: it may have exec'ed into a job's
_JOB_NAMES = ("MINDER_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


@dataclass(frozen=True, slots=True)
class JobProcess:
    """One training process. rank is None for a standby's, or where it is unknown; generation as the launcher reports it."""

    pid: int
    job: str
    rank: int | None = None
    slot: int | None = None
    generation: int | None = None
    heartbeat: str | None = None
    log: str | None = None
    device: str | None = None
    slurm_job: str | None = None  # its id, where Slurm started it, and the name that Slurm has for this machine
    node: str | None = None
    step_pattern: str | None = None  # MINDER_STEP_PATTERN
    error_file: str | None = None  # where torchrun's ranks leave their exception


def default_run_dir() -> Path:
    """Where agent and launcher of one machine meet, by default."""
    if os.geteuid() == 0:
        return Path("/run/minder")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "minder" if runtime else Path(f"/tmp/minder-{os.geteuid()}")


class _RegistryFile(NamedTuple):
    """A file of the registry as it was last read. changed: what another time of change or another file would alter."""

    changed: int
    processes: list[JobProcess]
    launcher: int | None


class JobTable:
    """The training processes of this machine, asked for at every sample.

    pids: an explicit list; one that is no rank itself (torchrun) stands for the ranks below it. discover: look at every process'
    environment, at most every 15 s. within: a file that lists the pids to look at (a cgroup's cgroup.procs) instead of all.
    """

    def __init__(self, run_dir: Path, pids: tuple[int, ...] = (), discover: bool = False, within: Path | None = None) -> None:
        self.run_dir = run_dir
        self.launchers: tuple[int, ...] = ()
        self._pids = pids
        self._discover = discover
        self._within = within
        self._registry: dict[str, _RegistryFile] = {}
        self._found: dict[int, JobProcess] = {}
        self._below: dict[int, tuple[float, list[JobProcess]]] = {}
        self._seen: set[int] = set()
        self._scanned_s = float("-inf")
        self._scans = 0

    def read(self, now_s: float) -> list[JobProcess]:
        """All training processes that are alive now, each once."""
        processes = {process.pid: process for process in self._read_registry()}
        for given in self._pids:
            for process in self._ranks_of(given, now_s):
                processes.setdefault(process.pid, process)
        if self._discover:
            if now_s - self._scanned_s >= _SCAN_EVERY_S:
                self._scan()
                self._scanned_s = now_s
            for pid, process in self._found.items():
                processes.setdefault(pid, process)
        return [self._with_page(process) for process in processes.values() if is_alive(process.pid)]

    def _read_registry(self) -> list[JobProcess]:
        """Files are read again only when they changed; a broken one keeps its last good content."""
        seen: dict[str, _RegistryFile] = {}
        try:
            entries = [entry for entry in os.scandir(self.run_dir / "jobs") if entry.name.endswith(".json")]
        except OSError:
            entries = []
        for entry in entries:
            try:
                changed = entry.stat().st_mtime_ns ^ entry.inode()
            except OSError:
                continue
            known = self._registry.get(entry.path)
            if known is None or known.changed != changed:
                parsed = _parse_registry(entry.path)
                known = _RegistryFile(changed, *parsed) if parsed else known
            if known is not None:
                seen[entry.path] = known
        self._registry = seen
        self.launchers = tuple(file.launcher for file in seen.values() if file.launcher is not None)
        return [process for file in seen.values() for process in file.processes]

    def _with_page(self, process: JobProcess) -> JobProcess:
        if process.heartbeat is not None:
            return process
        page = self.run_dir / "heartbeats" / f"pid-{process.pid}"
        return replace(process, heartbeat=str(page)) if page.exists() else process

    def _named(self, pid: int) -> JobProcess:
        if pid not in self._found:
            self._found[pid] = _from_environment(pid, read_environment(pid) or {}) or JobProcess(pid, "job")
        return self._found[pid]

    def _ranks_of(self, pid: int, now_s: float) -> list[JobProcess]:
        own = self._named(pid)
        if own.rank is not None:
            return [own]
        read_s, below = self._below.get(pid, (float("-inf"), []))
        if now_s - read_s >= _TREE_EVERY_S:
            named = ((child, _from_environment(child, read_environment(child) or {})) for child in read_tree([pid])[1:])
            before, below = below, list(_without_children({child: process for child, process in named if process is not None}).values())
            self._below[pid] = (now_s, below or before)  # between two generations there are none: those of the last one are dead
        return below or [own]

    def _scan(self) -> None:
        self._scans += 1
        if self._scans % _FULL_SCAN_EVERY == 0:
            self._seen.clear()
        pids = self._candidates()
        alive = set(pids)
        self._seen &= alive
        found = {pid: process for pid, process in self._found.items() if pid in alive}
        for pid in pids:
            if pid in self._seen:
                continue
            self._seen.add(pid)
            content = read_bytes(f"/proc/{pid}/environ", 131072)
            if content and b"WORLD_SIZE=" in content and b"RANK=" in content:
                process = _from_environment(pid, read_environment(pid) or {})
                if process is not None:
                    found[pid] = process
        self._found = _without_children(found)

    def _candidates(self) -> list[int]:
        if self._within is None:
            return list_pids()
        content = read_bytes(str(self._within), 1 << 20)
        return [int(pid) for pid in content.split()] if content else []


def _parse_registry(path: str) -> tuple[list[JobProcess], int | None] | None:
    try:
        with open(path, "rb") as handle:
            data: Any = json.load(handle)
        job, generation = str(data["job"]), data.get("generation")
        workers = [
            JobProcess(int(item["pid"]), job, item.get("rank"), item.get("slot"), generation, item.get("heartbeat"), item.get("log"))
            for item in data["workers"]
            if item.get("pid")
        ]
        launcher = data.get("launcher_pid")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return workers, launcher if isinstance(launcher, int) else None


def _from_environment(pid: int, environment: dict[str, str]) -> JobProcess | None:
    rank = environment.get("RANK", "")
    if not rank.isdigit() or not environment.get("WORLD_SIZE", "").isdigit():
        return None
    job = next((environment[name] for name in _JOB_NAMES if environment.get(name)), "job")
    generation = environment.get("MINDER_GENERATION") or environment.get("TORCHELASTIC_RESTART_COUNT") or ""
    number = int(generation) if generation.isdigit() else None
    return JobProcess(
        pid,
        job,
        int(rank),
        generation=number,
        device=_device(environment),
        slurm_job=environment.get("SLURM_JOB_ID") or None,
        node=environment.get("SLURMD_NODENAME") or None,
        step_pattern=environment.get("MINDER_STEP_PATTERN") or None,
        error_file=environment.get("TORCHELASTIC_ERROR_FILE") or None,
    )


def _device(environment: dict[str, str]) -> str | None:
    """The GPU that a rank of torchrun takes: LOCAL_RANK, looked up in CUDA_VISIBLE_DEVICES where that says numbers."""
    local = environment.get("LOCAL_RANK", "")
    if not local.isdigit():
        return None
    visible = [name.strip() for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    number = visible[int(local)] if int(local) < len(visible) and visible[0] else local
    return f"gpu{number}" if number.isdigit() else None


def _without_children(found: dict[int, JobProcess]) -> dict[int, JobProcess]:
    """Data loader workers inherit their rank's environment: the parent is the rank."""
    kept: dict[int, JobProcess] = {}
    for pid, process in found.items():
        stat = read_stat(pid)
        parent = found.get(stat.parent) if stat else None
        if parent is None or parent.rank != process.rank:
            kept[pid] = process
    return kept
