"""A disk that is full, and one that is slow: a file system of its own over a folder, until the fault is undone. Needs root."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from minder.model.errors import UnsupportedFaultError
from minder.simulate.lab import slow_disk

__all__ = ["FUSE", "fill", "slow_down"]

FUSE = Path("/dev/fuse")
_END_S = 10.0


def fill(folder: Path, name: str) -> Callable[[], None]:
    """No room is left in the folder. name: of the mount, by which a lab finds what is left of it. Returns how to undo it. Raises
    UnsupportedFaultError."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", name, str(folder)]
    done = subprocess.run(mount, check=False, capture_output=True, text=True)
    if done.returncode:
        raise UnsupportedFaultError(f"a full disk cannot be made here: {done.stderr.strip()}")
    with contextlib.suppress(OSError), (folder / "full").open("wb", buffering=0) as stream:
        while stream.write(bytes(4096)):
            continue
    return lambda: _unmount(folder)


def slow_down(folder: Path, name: str, rate: float, fsync_s: float, environment: Mapping[str, str]) -> Callable[[], None]:
    """What is in the folder stays, and is read and written at `rate` B/s; each sync takes `fsync_s`. environment: of the process that is
    the disk, by which a lab finds it. Returns how to undo it. Raises UnsupportedFaultError."""
    command = [sys.executable, "-I", "-S", slow_disk.__file__, str(folder), name, str(rate), str(fsync_s)]
    disk = subprocess.Popen(command, env=dict(environment), stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert disk.stdout is not None
    said = disk.stdout.readline().strip()
    disk.stdout.close()
    if said != "mounted":
        disk.wait()
        raise UnsupportedFaultError(f"a slow disk cannot be made here: {said or 'its process ended'}")

    def undo() -> None:
        _unmount(folder)
        with contextlib.suppress(subprocess.TimeoutExpired):
            disk.wait(_END_S)  # it ends when the last file there is closed

    return undo


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
