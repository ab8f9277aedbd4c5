"""The job's entry on this machine, for the agent: who the workers are, where they beat and log. Written at every change."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minder.model.errors import BadInputError
from minder.model.private import make_meeting, open_meeting, open_private

__all__ = ["Register"]


class Register:
    """`<run dir>/jobs/<job>.json` and the lock beside it: one launcher per job and machine."""

    def __init__(self, path: Path) -> None:
        self._path = path
        make_meeting(path.parent.parent, path.parent.name)
        self._lock = open_private(path.with_suffix(".lock"), "a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BadInputError(
                f"job {path.stem} already has a launcher in {path.parent.parent}: end it, or give another --run-dir"
            ) from None

    def end_orphans(self) -> list[int]:
        """Kill what a killed launcher left behind: pids of the old entry that still are this job's workers."""
        ended = []
        for worker in self._read().get("workers", []):
            pid = worker.get("pid")
            if isinstance(pid, int) and _writes(pid, str(worker.get("heartbeat"))):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                    ended.append(pid)
        return ended

    def write(self, entry: Mapping[str, Any]) -> None:
        """Replace the entry as a whole: a reader sees the old one or the new one."""
        draft = self._path.with_suffix(".json.new")
        with open_meeting(draft) as file:
            file.write(json.dumps(entry))
        draft.replace(self._path)

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._lock.close()

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _writes(pid: int, heartbeat: str) -> bool:
    try:
        return f"MINDER_HEARTBEAT_FILE={heartbeat}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
