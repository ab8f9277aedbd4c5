"""One worker process, driven over its control channel as the launcher drives it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

NO_TORCH = Path(__file__).parents[1] / "launcher" / "scripts" / "no_torch"


class Worker:
    """The launcher's end of the channel of a `minder.edge.worker.bootstrap` process that runs `code`."""

    def __init__(self, folder: Path, code: str, barrier: str) -> None:
        script = folder / "script.py"
        script.write_text(code)
        ours, theirs = socket.socketpair()
        ours.settimeout(30.0)
        self.page = folder / "page"
        self._lines = ours.makefile("rwb", buffering=0)
        self._socket = ours
        env = {
            **os.environ, "MINDER_CONTROL_FD": str(theirs.fileno()), "MINDER_BARRIER": barrier, "MINDER_HEARTBEAT_FILE": str(self.page),
            "MINDER_LAUNCHER_PID": str(os.getpid()), "PYTHONPATH": str(NO_TORCH),
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "minder.edge.worker.bootstrap", str(script), "argument"],
            env=env,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        theirs.close()

    def tell(self, kind: str, **fields: Any) -> None:
        self._lines.write(json.dumps({"kind": kind, **fields}).encode() + b"\n")

    def assign(self, generation: int, **env: str) -> None:
        self.tell("assign", generation=generation, env=env)

    def hear(self, kind: str) -> dict[str, Any]:
        """The next message, which must be of that kind."""
        line = self._lines.readline()
        assert line, f"the channel ended instead of {kind}: {self.process.communicate(timeout=10)[0]}"
        message = json.loads(line)
        assert message["kind"] == kind, message
        return dict(message)

    def end(self) -> tuple[int, str]:
        """Exit status and output, once it ended by itself."""
        output, _ = self.process.communicate(timeout=30)
        return self.process.returncode, output

    def hang_up(self) -> None:
        self._lines.close()
        self._socket.close()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.hang_up()


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., Worker]]:
    started: list[Worker] = []

    def start(code: str, barrier: str = "script") -> Worker:
        started.append(Worker(tmp_path, code, barrier))
        return started[-1]

    yield start
    for process in started:
        process.close()
