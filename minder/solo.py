"""`minder run` without a configuration: this machine alone, with an agent and a launcher of our own beside the controller."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from minder.config import JobConfig, LocalHandle, MachineConfig, default_state_dir
from minder.wire.tokens import write_token

__all__ = ["SoloMachine"]


class SoloMachine:
    """Starts agent and launcher on loopback, and gives the JobConfig that names them. A context manager: both end with it."""

    def __init__(self, name: str, script: Sequence[str], *, ranks: int, in_place: bool, state_dir: Path | None = None) -> None:
        self.state_dir = (state_dir or default_state_dir()) / "jobs" / name
        self._name = name
        self._script = list(script)
        self._ranks = ranks
        self._in_place = in_place
        self._stack = ExitStack()
        self.config: JobConfig | None = None

    def __enter__(self) -> SoloMachine:
        self.state_dir.mkdir(parents=True, exist_ok=True)
        token = self.state_dir / "token"
        write_token(token)
        agent, launcher = _free_port(), _free_port()
        machine, run_dir = socket.gethostname().split(".")[0], self.state_dir / "run"
        run_dir.mkdir(exist_ok=True)
        both = ["--machine", machine, "--token-file", str(token), "--run-dir", str(run_dir)]
        self._spawn(["agent", *both, "--listen", f"127.0.0.1:{agent}"], "agent")
        flags = [*both, "--job", self._name, "--listen", f"127.0.0.1:{launcher}"]
        flags += ["--slots", str(self._ranks), "--log-dir", str(self.state_dir / "logs")]
        flags += ["--barrier", "script" if self._in_place else "bootstrap"]
        self._spawn(["launch", *flags, "--", *self._script], "launcher")
        handle = LocalHandle(run_dir=str(run_dir))
        urls: dict[str, Any] = {"agent": f"http://127.0.0.1:{agent}", "launcher": f"http://127.0.0.1:{launcher}"}
        self.config = JobConfig(
            name=self._name,
            machines=(MachineConfig(name=machine, local=handle, **urls),),
            ranks_per_machine=self._ranks,
            agent_token_file=str(token),
            launcher_token_file=str(token),
            state_dir=str(self.state_dir),
            in_place=self._in_place,
        )
        return self

    def __exit__(self, *unused: object) -> None:
        self._stack.close()

    def _spawn(self, arguments: list[str], log: str) -> None:
        command = [sys.executable, "-m", "minder", *arguments]
        with (self.state_dir / f"{log}.log").open("ab") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(os.environ))
        self._stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
