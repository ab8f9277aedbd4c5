"""Where a watch keeps status.json and live.json: a folder of its own, so that two watches of one host never write one file."""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from minder.config import JobConfig
from minder.model.errors import ConfigError
from minder.model.private import make_private
from minder.model.resources import default_state_dir

__all__ = ["WatchFolder", "open_watch_folder", "status_places"]

_LOCK = "lock"


@dataclass(slots=True)
class WatchFolder:
    """path: the folder, which is there. The lock, if this watch has it, is held until `close`."""

    path: Path
    _lock: IO[str] | None = None

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()


def open_watch_folder(config: JobConfig) -> WatchFolder:
    """`watch/NAME` below the default state folder; `watch` below the one that job.toml names, as long as no other job's watch has it,
    else `watch/NAME` there. Raises ConfigError if it cannot be made."""
    above = Path(config.state_dir) if config.state_dir else default_state_dir()
    try:
        if config.state_dir:
            return _take(above / "watch", config.name)
        return WatchFolder(make_private(above / "watch" / config.name))
    except OSError as error:
        raise ConfigError(f"state_dir {above} cannot be used: {error.strerror or error}; name a folder that can be written") from error


def _take(path: Path, job: str) -> WatchFolder:
    make_private(path)
    lock = os.fdopen(os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = lock.read().strip()
        lock.close()
        if holder in ("", job):  # a former leader of this job that has not ended yet
            return WatchFolder(path)
        return WatchFolder(make_private(path / job))
    lock.truncate(0)
    lock.write(job)
    lock.flush()
    return WatchFolder(path, lock)


def status_places(path: Path, job: str) -> tuple[Path, ...]:
    """Where a job's status may stand: path (its own controller's), and those of a watch beside it."""
    return path, path.parent / "watch" / path.name, path.parent / "watch" / job / path.name
