"""Starting one worker process: its environment, its control channel, its log file, its own process group and cgroup."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from minder.edge.launcher.cache import CacheProcess
from minder.edge.launcher.settings import LaunchSettings
from minder.model.private import open_private
from minder.model.resources import child_python_path

__all__ = ["Spawned", "find_groups", "restore_priority", "spawn_worker"]

_LOW_PRIORITY = 10
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Spawned:
    """A started process, our end of its control channel, and a descriptor that becomes readable when it ends."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    pidfd: int


def spawn_worker(
    settings: LaunchSettings, heartbeat: Path, log: Path, low_priority: bool, version: str = "", slot: int = 0
) -> Spawned:  # fmt: skip
    """Start `python -P -m minder.edge.worker.bootstrap SCRIPT ...` as leader of a new session. Raises OSError.

    -P: a file of the current folder that is called like a module of Python's (queue.py, say) must not be taken for it before the script
    runs. The bootstrap puts the script's own folder on sys.path, as plain python does.
    """
    groups = find_groups(settings.cgroup) if settings.cgroup else []
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs, open_private(log, "ab", buffering=0) as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "minder.edge.worker.bootstrap", *settings.command],
            env={**_environment(settings, heartbeat, theirs.fileno()), **_about_code(settings, version), **_device(settings, slot)},
            stdin=subprocess.DEVNULL,
            stdout=output,  # a file, not a pipe: a launcher that hangs must not block a worker that prints
            stderr=subprocess.STDOUT,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
        )
    for group in groups:
        (group / "cgroup.procs").write_text(str(process.pid))
    if low_priority and os.geteuid() == 0:  # others could not raise it again when the worker is needed
        _set_priority(process.pid, _LOW_PRIORITY)
    return Spawned(process, ours, os.pidfd_open(process.pid))


def restore_priority(pid: int) -> None:
    """A worker that was warmed up at low priority gets its work."""
    if os.geteuid() == 0:
        _set_priority(pid, 0)


def _environment(settings: LaunchSettings, heartbeat: Path, control_fd: int) -> dict[str, str]:
    return {
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        **os.environ,
        **child_python_path(),
        **settings.env,
        **CacheProcess(settings).environment,
        "MINDER_JOB": settings.job,
        "MINDER_MACHINE": settings.machine,
        "MINDER_RUN_DIR": str(settings.run_dir),
        "MINDER_BARRIER": settings.barrier,
        "MINDER_HEARTBEAT_FILE": str(heartbeat),
        "MINDER_CONTROL_FD": str(control_fd),
        "MINDER_LAUNCHER_PID": str(os.getpid()),
    }


def _about_code(settings: LaunchSettings, version: str) -> dict[str, str]:
    """Checkpoints say which version wrote them, and `python -m` finds an update's module."""
    root = {} if settings.code_root is None else {"MINDER_CODE_DIR": str(settings.code_root)}
    return {"MINDER_CODE_VERSION": version, "MINDER_UPDATE": str(settings.update), **root}


def _device(settings: LaunchSettings, slot: int) -> dict[str, str]:
    return {"MINDER_START_DEVICE": str(slot)} if settings.start_device else {}


def find_groups(name: str) -> list[Path]:
    """The cgroup of that name in every hierarchy (v1, hybrid or v2). Raises OSError if there is none."""
    groups = [group for group in (_CGROUPS / name, *sorted(_CGROUPS.glob(f"*/{name}"))) if (group / "cgroup.procs").exists()]
    if not groups:
        raise OSError(f"no cgroup {name} under {_CGROUPS}: create it first")
    return groups


def _set_priority(pid: int, nice: int) -> None:
    """Linux keeps a nice value per thread: set all that there are, later ones inherit."""
    try:
        threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:
        return
    for thread in threads:
        try:
            os.setpriority(os.PRIO_PROCESS, thread, nice)
        except OSError:
            continue
