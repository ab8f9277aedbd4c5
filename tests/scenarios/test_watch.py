"""A job that nobody of ours started and that calls nothing of ours, watched through three agents: real processes, a real hang."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

SCRIPT = Path(__file__).parent / "scripts" / "plain_training.py"
TOKEN = "a-token-of-the-tests"

pytestmark = [pytest.mark.lab, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()


def wait_for(look: Callable[[], Any], what: str, limit_s: float = 90.0) -> Any:
    end_s = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < end_s, f"{what} did not come within {limit_s:.0f} s"
        time.sleep(0.1)
    return found


class Site:
    """Three ranks by hand, an agent for each of them, and a watcher. Everything ends with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.log = folder / "rank0.log"
        self.lines: list[dict[str, Any]] = []
        self._stack = stack
        self.ports = [free_port() for _ in range(3)]
        (folder / "token").write_text(TOKEN)
        (folder / "token").chmod(0o600)
        self.ranks = [self._rank(rank, free) for free in [free_port()] for rank in range(3)]
        self.agents = [self.agent(machine) for machine in range(3)]

    def spawn(self, command: list[str], output: Any, **environment: str) -> subprocess.Popen[Any]:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True, cwd=self.folder
        )
        self._stack.callback(end, process)
        return process

    def _rank(self, rank: int, port: int) -> subprocess.Popen[Any]:
        output = self._stack.enter_context((self.folder / f"rank{rank}.log").open("wb"))
        place = {"RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        return self.spawn([sys.executable, str(SCRIPT), "100000"], output, **place, OMP_NUM_THREADS="1")

    def agent(self, machine: int) -> subprocess.Popen[Any]:
        pid = str(self.ranks[machine].pid)
        flags = ["--listen", f"127.0.0.1:{self.ports[machine]}", "--machine", f"m{machine}", "--token-file", str(self.folder / "token")]
        flags += ["--run-dir", str(self.folder / f"run{machine}"), "--pids", pid, "--processes-of", pid, "--gpu", "off"]
        flags += ["--log", str(self.log)] if machine == 0 else []
        output = self._stack.enter_context((self.folder / f"agent{machine}.log").open("ab"))
        return self.spawn([sys.executable, "-m", "minder", "agent", *flags], output)

    def watch(self) -> subprocess.Popen[Any]:
        machines = [f'[[machines]]\nname = "m{index}"\nagent = "http://127.0.0.1:{port}"' for index, port in enumerate(self.ports)]
        head = f'name = "plain"\nagent_token_file = "{self.folder}/token"\nstate_dir = "{self.folder}/state"\n'
        (self.folder / "job.toml").write_text(head + "\n".join(machines))
        errors = self._stack.enter_context((self.folder / "watch.log").open("wb"))
        watcher = subprocess.Popen(
            [sys.executable, "-m", "minder", "watch", "--job", str(self.folder / "job.toml")], stdout=subprocess.PIPE, stderr=errors
        )
        self._stack.callback(end, watcher)
        threading.Thread(target=self._listen, args=(watcher,), daemon=True).start()
        return watcher

    def _listen(self, watcher: subprocess.Popen[Any]) -> None:
        assert watcher.stdout is not None
        for line in watcher.stdout:
            self.lines.append(json.loads(line))

    def status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "state" / "watch" / "status.json").read_text()))
        except (OSError, ValueError):
            return {}

    def step(self) -> int:
        return int(self.status().get("step") or 0)

    def accused(self) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["kind"] in ("machine", "group") and line["tier"] in ("evict", "page")]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


@pytest.mark.timeout(280)
def test_a_rank_that_stops_is_named_and_an_agent_that_is_restarted_is_not(site: Site) -> None:
    watcher = site.watch()
    wait_for(lambda: site.step() > 20, "the 20th step")
    end(site.agents[2])
    begun = site.step()
    site.agents[2] = site.agent(2)
    wait_for(lambda: site.step() > begun + 40, "40 steps more")
    assert site.accused() == []
    stopped_s = time.time()
    site.ranks[1].send_signal(signal.SIGSTOP)
    first = wait_for(site.accused, "a verdict")[0]
    print(f"named after {time.time() - stopped_s:.1f} s: {first}")
    assert (first["recording"], first["kind"], first["machines"], first["cause"]) == ("plain", "machine", ["m1"], "stall")
    assert first["evidence"] and {line["machines"][0] for line in site.accused()} == {"m1"}
    assert [rank.poll() for rank in site.ranks] == [None] * 3, "watching acts on nothing"
    watcher.send_signal(signal.SIGINT)
    assert watcher.wait(30) == 0


def _end_tree(job: subprocess.Popen[bytes]) -> None:
    """torchrun that is killed leaves its ranks alive: they go first."""
    for process in psutil.Process(job.pid).children(recursive=True) if job.poll() is None else []:
        process.kill()
    job.kill()
    job.wait(10)


@pytest.mark.timeout(280)
def test_a_plain_torchrun_that_restarts_its_ranks_is_followed(tmp_path: Path) -> None:
    """The pid given is torchrun's; its ranks die and are started again as others. No machine is to blame for that.

    The ranks of each generation get a store of their own: in the one that torchrun shares with them by default, gloo finds the addresses
    of the dead generation, and the second often hangs or gives up, above all on a busy machine.
    """
    with ExitStack() as stack:
        output = stack.enter_context((tmp_path / "log").open("wb"))
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", "--max-restarts", "3"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MINDER_STATE_DIR": str(tmp_path / "state")}
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        job = subprocess.Popen([*command, str(SCRIPT), "60", "0.3", "30"], cwd=tmp_path, stdout=output, stderr=output, env=environment)
        stack.callback(_end_tree, job)
        wait_for(lambda: "iteration        2/" in (tmp_path / "log").read_text(), "the second step")
        words = ["watch", "--pids", str(job.pid), "--log", str(tmp_path / "log"), "--duration", "60"]
        watcher = subprocess.run([sys.executable, "-m", "minder", *words], env=environment, capture_output=True, text=True, timeout=150)
        assert job.wait(60) == 0, (tmp_path / "log").read_text()
    lines = [json.loads(line) for line in watcher.stdout.splitlines()]
    assert watcher.returncode == 0, watcher.stderr
    assert "the job was started again: ranks" in watcher.stderr and "(generation 2)" in watcher.stderr
    assert [line for line in lines if line["machines"]] == []
