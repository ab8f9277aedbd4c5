"""Real launchers with real workers, driven as the controller drives them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

SCRIPTS = Path(__file__).parent / "scripts"
START_LIMIT_S = 60.0


class Launcher:
    """`minder launch` as a process, and its HTTP."""

    def __init__(self, folder: Path, arguments: list[str], script: list[str], env: dict[str, str]) -> None:
        self.run_dir = folder / "run"
        self.job = "demo"
        self._folder = folder
        code = "import sys; from minder.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", code, "launch", "--job", self.job, "--machine", "m1", "--listen", "127.0.0.1:0"]
        command += ["--run-dir", str(self.run_dir), *arguments, "--", *script]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **env}, text=True)
        self.http: httpx.Client | None = None
        self.seen = 0
        self._operations = 0

    def connect(self, token: str | None = None) -> Launcher:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert " at 127.0.0.1:" in line, (line, self.process.stderr.read() if self.process.stderr else "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url="http://" + line.rsplit(" at ", 1)[1].strip(), headers=headers, timeout=30.0)
        return self

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        assert self.http is not None
        answer = self.http.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def workers(self) -> list[dict[str, Any]]:
        return list(self.get("/v1/state")["workers"])

    def post(self, desired: str, generation: int, envs: list[dict[str, str]] | None = None, **more: Any) -> httpx.Response:
        assert self.http is not None
        self._operations += 1
        body = {"operation_id": f"op-{self._operations}", "generation": generation, "desired": desired, "grace_s": 5.0}
        assignments = [{"slot": slot, "env": env} for slot, env in enumerate(envs or [])]
        return self.http.post("/v1/workers", json={**body, "world_size": len(assignments), "assignments": assignments, **more})

    def wait_for(self, what: Callable[[list[dict[str, Any]]], bool], limit_s: float = START_LIMIT_S) -> list[dict[str, Any]]:
        """The first state for which `what` is true."""
        deadline_s = time.monotonic() + limit_s
        while time.monotonic() < deadline_s:
            found = self.workers()
            if what(found):
                return found
            time.sleep(0.02)
        raise AssertionError(f"still {self.workers()} after {limit_s} s; logs: {self.logs()[-3000:]}")

    def wait_states(self, *states: str) -> list[dict[str, Any]]:
        return self.wait_for(lambda workers: [worker["state"] for worker in workers] == list(states))

    def wait_steps(self, step: int, generation: int) -> list[dict[str, Any]]:
        return self.wait_for(
            lambda workers: all(worker["generation"] == generation and (worker["step"] or 0) >= step for worker in workers)
        )

    def wait_events(self, *kinds: str, limit_s: float = START_LIMIT_S) -> list[dict[str, Any]]:
        """Events of these kinds, until each was seen once more than before; all that came, in order."""
        wanted, found = list(kinds), []
        deadline_s = time.monotonic() + limit_s
        while wanted and time.monotonic() < deadline_s:
            answer = self.get("/v1/events", since=self.seen, wait=1.0)
            self.seen = answer["next"]
            found += answer["signals"]
            for signal in answer["signals"]:
                if signal["kind"] in wanted:
                    wanted.remove(signal["kind"])
        assert not wanted, (wanted, found, self.logs()[-3000:])
        return found

    def register(self) -> dict[str, Any]:
        return dict(json.loads((self.run_dir / "jobs" / f"{self.job}.json").read_text()))

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in sorted((self.run_dir / "logs").glob("*.log")))

    def notes(self) -> list[dict[str, Any]]:
        path = self._folder / "notes"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def close(self) -> None:
        if self.http is not None:
            self.http.close()
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., Launcher]]:
    """Start launchers: launch("script.py", "argument", options=[...], env={...}); all are ended after the test."""
    started: list[Launcher] = []

    def start(script: str, *arguments: str, options: list[str] | None = None, env: dict[str, str] | None = None) -> Launcher:
        folder = tmp_path / f"machine{len(started)}"
        folder.mkdir()
        notes = {"MINDER_TEST_NOTES": str(folder / "notes")}
        launcher = Launcher(folder, options or [], [str(SCRIPTS / script), *arguments], {**notes, **(env or {})})
        started.append(launcher)
        return launcher

    yield start
    for launcher in started:
        launcher.close()


@pytest.fixture
def host_generation() -> Iterator[Callable[[int, int], list[dict[str, str]]]]:
    """Host one store per generation, outside the workers; the environment of each rank."""
    import torch.distributed as dist

    stores = []

    def host(generation: int, world_size: int) -> list[dict[str, str]]:
        store = dist.TCPStore("127.0.0.1", 0, world_size, is_master=True, wait_for_workers=False)
        stores.append(store)
        common = {
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(world_size), "LOCAL_WORLD_SIZE": str(world_size),
            "GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "demo", "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(generation), "MINDER_GENERATION": str(generation),
        }  # fmt: skip
        return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world_size)]

    yield host
    stores.clear()
