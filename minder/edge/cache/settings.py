"""A cache's command line, checked: a memory that is too small is refused before any job counts on it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from minder.edge.cache.folder import foreign_files
from minder.edge.exporters.cgroup import Cgroup
from minder.edge.exporters.procfs import read_text
from minder.model.errors import BadInputError, ConfigError
from minder.model.names import check_job_name, check_machine_name
from minder.model.private import make_private, replace_private
from minder.wire.addresses import is_loopback
from minder.wire.token_files import Token

__all__ = ["CacheSettings", "cgroup_room", "check_settings", "default_folder", "parse_bytes"]

_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([kMGT]?)i?B?")
_UNITS = {"": 1, "k": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_OWNER = "owner.json"
_LONGEST_SOCKET_PATH = 100  # the kernel's limit is 108 bytes


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """One cache: `job` on `machine`. Sizes in bytes, times in seconds. linger_s: from the last rank's end until the records go;
    max_age_s: the same from the last sign of any rank. rate_bytes_per_s: of backups that are fetched; 0: no limit."""

    job: str
    machine: str
    host: str
    port: int
    folder: Path
    max_bytes: int
    token: Token | None = None
    rate_bytes_per_s: float = 0.0
    linger_s: float = 60.0
    max_age_s: float = 3600.0

    @property
    def socket_path(self) -> Path:
        return self.folder / "socket"


def default_folder(job: str, machine: str) -> Path:
    """Named memory of this user, job and machine."""
    return Path("/dev/shm") / f"minder-{os.getuid()}" / job / machine


def parse_bytes(text: str, option: str = "--max-bytes") -> int:
    """A size with a unit of powers of 1024. Raises BadInputError.

    >>> parse_bytes("1.5G")
    1610612736
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadInputError(f"{option} {text!r}: give a size such as 64G, 512M or a number of bytes")
    return int(float(match[1]) * _UNITS[match[2]])


def check_settings(settings: CacheSettings) -> None:
    """Make the folder, and raise BadInputError for what cannot work."""
    check_job_name("--job", settings.job)
    check_machine_name("--machine", settings.machine)
    if settings.host in ("0.0.0.0", "::"):
        raise BadInputError(f"--listen {settings.host}: give the address at which the job's other machines reach this one")
    if settings.token is None and not is_loopback(settings.host):
        raise BadInputError(f"--listen {settings.host} can be reached from other machines: give --token-file")
    if len(str(settings.socket_path)) > _LONGEST_SOCKET_PATH:
        raise BadInputError(f"--folder {settings.folder}: its path is too long for a socket in it, {_LONGEST_SOCKET_PATH} bytes at most")
    _take_folder(settings)
    there = _room_bytes(settings.folder)
    if not 0 < settings.max_bytes <= there:
        raise BadInputError(
            f"--max-bytes {settings.max_bytes}: {settings.folder}, this machine's memory and the memory limits of this process's cgroup "
            f"have room for {there} bytes; give less, or more memory"
        )


def _take_folder(settings: CacheSettings) -> None:
    """It is this job's and machine's own: records do not say whose they are, and it is removed in the end."""
    folder, owner = settings.folder, {"job": settings.job, "machine": settings.machine}
    try:
        make_private(folder)
        foreign, path = foreign_files(folder), folder / _OWNER
        if foreign:
            raise BadInputError(f"--folder {folder} holds {foreign[0]}, which is none of a cache's: give a folder of its own")
        known = json.loads(path.read_text()) if path.exists() else owner
        if known != owner:
            raise BadInputError(
                f"--folder {folder} is of job {known.get('job')} on {known.get('machine')}: give another, or remove it when that is over"
            )
        replace_private(path, json.dumps(owner))
    except (OSError, ValueError, AttributeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"its {_OWNER} is damaged"
        raise BadInputError(f"--folder {folder}: {why}; give a folder in memory that this user may write") from error


def _room_bytes(folder: Path) -> int:
    """What the file system and the memory still take, and what records of an earlier cache take already."""
    status = os.statvfs(folder)
    own = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
    return min(status.f_bavail * status.f_frsize, _available_bytes(), *cgroup_room()) + own


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 2**63


def cgroup_room(own: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """What each memory limit above this process leaves: of its container, pod, Slurm step or unit. Named memory counts to them too."""
    for line in (read_text(str(own)) or "").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        for path in (Path(name), *Path(name).parents):
            try:
                group = Cgroup(str(path), root)
            except ConfigError:
                continue  # the host's path, seen from a container
            use = group.read()
            if use.memory_limit_bytes is not None and use.memory_bytes is not None:
                yield max(0, use.memory_limit_bytes - use.memory_bytes)
