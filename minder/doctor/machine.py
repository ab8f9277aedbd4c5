"""This machine: may it look into processes, read its kernel's log, its cgroups, its GPUs; is there room on its disks?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from minder.doctor.finding import Finding
from minder.edge.exporters.gpu import has_driver

__all__ = ["MachineRoots", "look_at_machine", "look_at_space"]

_PTRACE_BIT = 19  # CAP_SYS_PTRACE (capability.h)
_LEAST_BYTES = 10 * 2**30
_NVML_S = 30.0


class MachineRoots:
    """Where the kernel's files are; a test has others."""

    def __init__(self, proc: Path = Path("/proc"), sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> None:
        self.proc, self.sys, self.dev = proc, sys, dev


def look_at_machine(run_dir: Path, roots: MachineRoots | None = None) -> list[Finding]:
    roots = roots or MachineRoots()
    return [_py_spy(), _ptrace(roots), _kernel_log(roots), _cgroups(roots), _nvml(), _run_dir(run_dir)]


def look_at_space(what: str, folder: Path, least_bytes: int = _LEAST_BYTES) -> Finding:
    """Room for what is written there; the folder, or the nearest above it that is there."""
    place = next((path for path in (folder, *folder.parents) if path.is_dir()), Path("/"))
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return Finding(f"space for {what}", "missing", f"{place}: {error.strerror}", "mend the mount, or name another folder")
    seen = f"{folder}: {free / 2**30:.1f} GiB free"
    if not os.access(place, os.W_OK):
        return Finding(f"space for {what}", "missing", f"{place} cannot be written by this user", f"chown it to who runs minder: {place}")
    if free < least_bytes:
        return Finding(f"space for {what}", "missing", seen, f"free at least {least_bytes / 2**30:.1f} GiB, or name another folder")
    return Finding(f"space for {what}", "ok", seen)


def _py_spy() -> Finding:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.is_file() else shutil.which("py-spy")
    if found is None:
        return Finding(
            "py-spy", "missing", "py-spy is not beside this Python and not on the PATH", "pip install py-spy into the same environment"
        )
    try:
        done = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20.0, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("py-spy", "missing", f"{found} does not run: {error}", "pip install --force-reinstall py-spy")
    return Finding("py-spy", "ok", f"{done.stdout.strip() or found}")


def _ptrace(roots: MachineRoots) -> Finding:
    """Reading another process's stack is ptrace (man 2 ptrace, "Ptrace access mode checking"; Documentation/admin-guide/LSM/Yama.rst)."""
    scope = _read(roots.proc / "sys/kernel/yama/ptrace_scope")
    capable = _has_capability(roots.proc / "self/status", _PTRACE_BIT)
    yama = "no Yama" if scope is None else f"ptrace_scope {scope}"
    if scope == "3":
        return Finding(
            "ptrace",
            "missing",
            "ptrace_scope 3: no process may trace, not even as root",
            "set kernel.yama.ptrace_scope to 2 or less and reboot",
        )
    if capable:
        return Finding("ptrace", "ok", f"CAP_SYS_PTRACE, {yama}: stacks of all processes can be read")
    mend = "run the agent as root or with CAP_SYS_PTRACE (the unit of serve/deploy/systemd does), or as the job's user with ptrace_scope 0"
    if scope in (None, "0"):
        return Finding("ptrace", "note", f"no CAP_SYS_PTRACE, {yama}: stacks of this user's own processes only", mend)
    return Finding("ptrace", "missing", f"no CAP_SYS_PTRACE, {yama}: no stacks of processes that the agent did not start", mend)


def _kernel_log(roots: MachineRoots) -> Finding:
    mend = "run the agent as root or with CAP_SYSLOG; or set kernel.dmesg_restrict to 0"
    try:
        os.close(os.open(roots.dev / "kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except FileNotFoundError:
        return Finding(
            "kernel log",
            "note",
            f"there is no {roots.dev / 'kmsg'} (a container?): Xid and OOM messages are not seen",
            "mount the host's; minder agent --kernel-log names it",
        )
    except OSError as error:
        return Finding("kernel log", "missing", f"{roots.dev / 'kmsg'}: {error.strerror}: Xid and OOM messages are not seen", mend)
    return Finding("kernel log", "ok", "can be read")


def _cgroups(roots: MachineRoots) -> Finding:
    root = roots.sys / "fs/cgroup"
    if (root / "cgroup.controllers").is_file():
        return Finding("cgroups", "ok", f"version 2: {_read(root / 'cgroup.controllers') or 'no controllers'}")
    first = [name for name in ("cpu", "memory") if (root / name).is_dir()]
    if first:
        return Finding("cgroups", "ok", f"version 1: {', '.join(first)}")
    return Finding(
        "cgroups",
        "note",
        f"{root} has none that can be read: a machine that is a cgroup cannot be distinguished from its host",
        "mount /sys/fs/cgroup",
    )


def _nvml() -> Finding:
    """Asked in a process of its own: NVML does not return from some calls on a lost GPU."""
    code = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount(), pynvml.nvmlSystemGetDriverVersion())"
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=_NVML_S, check=False)
    except subprocess.TimeoutExpired:
        return Finding(
            "NVML", "missing", f"does not answer within {_NVML_S:.0f} s", "look at dmesg for Xid messages; a reboot mends most of these"
        )
    if done.returncode == 0:
        count, _, driver = done.stdout.strip().partition(" ")
        return Finding("NVML", "ok", f"{count} GPUs, driver {driver}")
    why = (done.stderr.strip().splitlines() or ["no word why"])[-1]
    if not has_driver():
        return Finding("NVML", "note", "no NVIDIA driver here: no GPU metrics (right for a machine without GPUs)")
    return Finding(
        "NVML",
        "missing",
        f"a driver is there, NVML is not: {why}",
        "driver and libnvidia-ml must be of one version: reboot after a driver update",
    )


def _run_dir(run_dir: Path) -> Finding:
    if run_dir.is_dir() and os.access(run_dir, os.R_OK | os.X_OK):
        return Finding("run folder", "ok", f"{run_dir}: where agent and launcher of this machine meet")
    if run_dir.exists():
        return Finding(
            "run folder",
            "missing",
            f"{run_dir} cannot be read by this user",
            "give agent and launcher the same --run-dir, readable by both",
        )
    return Finding("run folder", "note", f"{run_dir} is not there yet: the first agent or launcher makes it")


def _has_capability(status: Path, bit: int) -> bool:
    for line in (_read(status) or "").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> bit & 1)
    return False


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
