"""The launcher's side of the checkpoint cache: started when there is work, in a session of its own, and again when it died.

It outlives workers and launcher on purpose: its memory is what the job goes on from. It ends by itself when its job is over.
"""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from minder.edge.cache.client import SOCKET_VARIABLE
from minder.edge.cache.members import kept_steps
from minder.edge.cache.settings import default_folder
from minder.edge.launcher.settings import LaunchSettings
from minder.model.log import event
from minder.model.private import make_private, open_private
from minder.model.resources import child_python_path
from minder.wire.token_files import TokenFile

__all__ = ["CacheProcess"]

_log = logging.getLogger("minder.launcher")


class CacheProcess:
    """One machine's cache of one job. `ensure` as often as you like: it finds the one that an earlier launcher started."""

    def __init__(self, settings: LaunchSettings) -> None:
        self._settings = settings
        self._folder = settings.cache_folder or default_folder(settings.job, settings.machine)
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """For the workers; nothing where no cache is wanted."""
        return {SOCKET_VARIABLE: str(self._folder / "socket")} if self._settings.cache_bytes else {}

    def kept(self) -> list[dict[str, Any]] | None:
        """The steps that stay in memory here, newest first; None where no cache is wanted, or it is not known."""
        found = kept_steps(self._folder) if self._settings.cache_bytes else None
        return None if found is None else [asdict(each) for each in found]

    def ensure(self) -> None:
        """Start it unless it runs or is starting. A cache that cannot be started leaves a line in the log; the workers find out too."""
        starting = self._child is not None and self._child.poll() is None
        if not self._settings.cache_bytes or starting or _answers(self._folder / "socket"):
            return
        if self._child is not None:
            event(_log, logging.WARNING, "cache ended", job=self._settings.job, code=self._child.returncode, detail="it is started again")
        try:
            self._child = self._start()
        except OSError as error:
            event(_log, logging.ERROR, "cache not started", job=self._settings.job, detail=str(error))

    def _start(self) -> subprocess.Popen[bytes]:
        settings = self._settings
        make_private(settings.log_dir)
        command = [sys.executable, "-P", "-m", "minder", "cache", "--job", settings.job, "--machine", settings.machine]
        command += ["--folder", str(self._folder), "--max-bytes", settings.cache_bytes]
        command += ["--listen", settings.cache_listen or f"{_bracketed(settings.host)}:0"]
        if isinstance(settings.token, TokenFile):
            command += ["--token-file", str(settings.token.path)]
        with open_private(settings.log_dir / f"{settings.job}-cache.log", "ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, **child_python_path()},
            )  # fmt: skip


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
