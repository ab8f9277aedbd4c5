"""Servers of our own on this machine, run for as long as a block lasts: what a local Slurm and a local Kubernetes share."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Self

from minder.model.private import open_private
from minder.simulate.lab.processes import end_processes, marked_processes

__all__ = ["LocalDaemons", "free_ports"]


class LocalDaemons(ABC):
    """On entry they are started, whole or not at all. MARK: the variable by which every process of theirs is known."""

    MARK: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._mark = secrets.token_hex(8)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stack = ExitStack()

    @property
    def environment(self) -> dict[str, str]:
        """What the servers and all that they start inherit."""
        return {**os.environ, self.MARK: self._mark}

    @abstractmethod
    def _start(self) -> None:
        """Raises LabError where they cannot be started."""

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.callback(self.__exit__)
            self._start()
            undo.pop_all()  # it stands: nothing is to be undone now
        return self

    def __exit__(self, *unused: object) -> None:
        """All are ended at once, with what they started, stopped ones too; nothing is waited for that may hang."""
        end_processes(lambda: marked_processes(self.MARK, self._mark), 20.0)
        for process in self._processes.values():
            process.wait()
        self._stack.close()

    def _spawn(self, name: str, command: list[str]) -> None:
        output = self._stack.enter_context(open_private(self.folder / f"{name}.out", "ab"))
        self._processes[name] = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=self.environment, cwd=self.folder,
            start_new_session=True,
        )  # fmt: skip


def free_ports(count: int) -> list[int]:
    """Ports of loopback without a listener, all different."""
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            probe = stack.enter_context(socket.socket())
            probe.bind(("127.0.0.1", 0))
            found.append(int(probe.getsockname()[1]))
        return found
