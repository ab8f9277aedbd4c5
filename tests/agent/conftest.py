"""A real agent process, and real training-like processes for it to look at."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

TOKEN = "a-token-of-the-tests"

WORKER = """
import os, socket, sys, time
from minder.wire.heartbeat import HeartbeatPage
page = HeartbeatPage(sys.argv[1])
page.identify(int(sys.argv[2]), 3)
step = 0
print("worker of the test begins", flush=True)
while True:
    if step < int(sys.argv[4]):
        page.beat(step, loss=2.0, grad_norm=0.5, flags=int(step == int(sys.argv[3])))
    page.alive()
    step += 1
    time.sleep(0.05)
"""

PEERS = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
if len(sys.argv) > 1:
    talker = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    talker.sendall(b"x" * 5000)
    print("sent", talker.getsockname()[1], flush=True)
else:
    print(listener.getsockname()[1], flush=True)
    silent, _ = listener.accept()
time.sleep(60)
"""


def wait_for(look: Callable[[], Any], what: str, limit_s: float = 30.0) -> Any:
    """The first truthy answer of `look`."""
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come within {limit_s} s")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Agent:
    """A running agent and a client for it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, token: str | None) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=self.url, headers=headers, timeout=20.0, trust_env=False)

    def metrics(self) -> dict[str, float]:
        """Exported values by series, for example `minder_tcp_receive_bytes_total{device="eth0"}`."""
        lines = self.http.get("/metrics").raise_for_status().text.splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line and not line.startswith("#")}

    def wait_metric(self, name: str, test: Callable[[float], bool] = lambda value: True) -> float:
        def look() -> list[float]:
            value = self.metrics().get(name)
            return [value] if value is not None and test(value) else []

        return float(wait_for(look, name)[0])

    def capture(self, **body: Any) -> dict[str, Any]:
        return dict(self.http.post("/v1/capture", json=body).raise_for_status().json())

    def signals(self, since: int = 0, wait: float = 0.0) -> dict[str, Any]:
        return dict(self.http.get("/v1/signals", params={"since": since, "wait": wait}).raise_for_status().json())


class Bench:
    """Starts processes that the test's end takes away again."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.run_dir = folder / "run"
        for name in ("jobs", "heartbeats"):
            (self.run_dir / name).mkdir(parents=True, exist_ok=True)
        self._stack = stack

    def python(self, code: str, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        return self.spawn([sys.executable, "-c", code, *arguments], env)

    def spawn(self, command: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        self._stack.callback(_end, process)
        return process

    def worker(self, rank: int, flagged_step: int = -1, steps: int = 1_000_000) -> subprocess.Popen[bytes]:
        page = self.run_dir / "heartbeats" / f"testjob-{rank}"
        process = self.python(WORKER, str(page), str(rank), str(flagged_step), str(steps))
        assert process.stdout is not None and b"begins" in process.stdout.readline()
        return process

    def register(self, *processes: subprocess.Popen[bytes], rank: int | None = 0) -> None:
        """Write the launcher's registry: slots in order, ranks from `rank` on, or standbys (None)."""
        workers = [
            {
                "slot": slot,
                "pid": process.pid,
                "rank": None if rank is None else rank + slot,
                "heartbeat": str(self.run_dir / "heartbeats" / f"testjob-{slot}"),
                "log": str(self.folder / f"worker-{slot}.log"),
            }
            for slot, process in enumerate(processes)
        ]
        content = {"job": "testjob", "machine": "m0", "generation": 3, "launcher_pid": os.getpid(), "workers": workers}
        fresh = self.run_dir / "jobs" / "testjob.json.tmp"
        fresh.write_text(json.dumps(content))
        fresh.rename(self.run_dir / "jobs" / "testjob.json")

    def agent(self, *flags: str, token: str | None = TOKEN, env: dict[str, str] | None = None) -> Agent:
        port = free_port()
        command = [sys.executable, "-m", "minder", "agent", "--listen", f"127.0.0.1:{port}", "--machine", "m0"]
        command += ["--run-dir", str(self.run_dir), "--interval", "0.3", "--gpu", "off", *flags]
        process = self.spawn(command, {"MINDER_TOKEN": token or "", **(env or {})})
        agent = Agent(process, port, token)
        self._stack.callback(agent.http.close)

        def answers() -> bool:
            assert process.poll() is None, process.stdout.read() if process.stdout else "agent ended"
            try:
                return agent.http.get("/v1/health").status_code in (200, 401)
            except httpx.TransportError:
                return False

        wait_for(answers, "the agent's answer", 60.0)
        return agent


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for started in psutil.Process(process.pid).children(recursive=True):
            started.kill()
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(tmp_path, stack)


class SharedBench(Bench):
    """Processes of one test, before an agent that other tests have asked already."""

    def __init__(self, folder: Path, stack: ExitStack, standing: Agent) -> None:
        super().__init__(folder, stack)
        self._standing = standing

    def agent(self, *flags: str, token: str | None = TOKEN, env: dict[str, str] | None = None) -> Agent:
        """The one that stands: it reads what is registered at every request."""
        assert not flags and token == TOKEN and env is None
        return self._standing


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Agent]]:
    """An agent without flags, and the folder that it looks at."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("standing")
        yield folder, Bench(folder, stack).agent()


@pytest.fixture
def shared(standing: tuple[Path, Agent]) -> Iterator[SharedBench]:
    """A bench for tests that only ask the agent and leave nothing behind in it: it starts no agent of its own."""
    folder, agent = standing
    with ExitStack() as stack:
        yield SharedBench(folder, stack, agent)
    for file in [*(folder / "run").rglob("*"), *folder.glob("*.log")]:
        if file.is_file():
            file.unlink()


@pytest.fixture
def wait() -> Callable[..., Any]:
    return wait_for


@pytest.fixture
def peers(bench: Bench) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    """Two processes; the first never reads the 5,000 bytes that the second has sent."""
    silent = bench.python(PEERS)
    assert silent.stdout is not None
    port = silent.stdout.readline().decode().strip()
    talker = bench.python(PEERS, port)
    assert talker.stdout is not None and re.match(rb"sent \d+", talker.stdout.readline())
    return silent, talker
