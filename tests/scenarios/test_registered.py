"""A job that is registered through the API is watched by a process of the service: real ranks, agents, service and watcher."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from minder.cli import main
from minder.record.client import Client, follow_events
from minder.record.store.tokens import TokenRecord, TokenStore, new_id


class Served:
    """`minder serve` as a process, which may be killed and started again on the same ledger."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self._environment = {**os.environ, "MINDER_STATE_DIR": str(folder / "state"), "MINDER_LEDGER": str(folder / "ledger.db")}
        store = TokenStore(folder / "ledger.db")
        self.token = store.create(TokenRecord(new_id(), "ada", "admin", time.time(), "root"))
        store.close()
        (folder / "admin").write_text(self.token)
        (folder / "admin").chmod(0o600)
        (folder / "service.toml").write_text('[jobs]\nagent_token_file = "token"\n')
        self._starts = 0

    def start(self) -> None:
        self._starts += 1
        log = self.folder / f"serve{self._starts}.log"
        command = [sys.executable, "-m", "minder", "serve", "--listen", "127.0.0.1:0", "--settings", str(self.folder / "service.toml")]
        self.process = subprocess.Popen(command, stderr=self._stack.enter_context(log.open("wb")), env=self._environment)
        self._stack.callback(self.stop)
        while "http://127.0.0.1:" not in log.read_text():
            assert self.process.poll() is None, log.read_text()
            time.sleep(0.05)
        self.url = next(word for word in log.read_text().split() if word.startswith("http://127.0.0.1:")).split("/v1")[0]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(30)

    def watchers(self) -> list[psutil.Process]:
        """Of this test's ledger, whoever started them."""
        found = []
        for process in psutil.process_iter():
            try:
                if "--registered" in process.cmdline() and process.environ().get("MINDER_LEDGER") == self._environment["MINDER_LEDGER"]:
                    found.append(process)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def plain(load_file: Callable[[Path], ModuleType]) -> ModuleType:
    """Three ranks by hand with an agent each, as `minder watch` is tested."""
    return load_file(Path(__file__).parent / "test_watch.py")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.timeout(280)
@pytest.mark.lab
def test_a_registered_job_gets_verdicts_also_after_the_service_was_killed(tmp_path: Path, plain: ModuleType, stack: ExitStack) -> None:
    site: Any = plain.Site(tmp_path, stack)
    served = Served(tmp_path, stack)
    served.start()
    (tmp_path / "job.toml").write_text(
        'name = "plain"\n'
        + "\n".join(f'[[machines]]\nname = "m{index}"\nagent = "http://127.0.0.1:{port}"' for index, port in enumerate(site.ports))
    )
    words = ["--server", served.url, "--token-file", str(tmp_path / "admin"), "job"]
    assert main([*words, "register", str(tmp_path / "job.toml"), "--reason", "new run"]) == 0

    def step(client: Client) -> int:
        status = client.job("plain").status
        return int((status or {}).get("step") or 0)

    with Client(served.url, served.token) as client:
        plain.wait_for(lambda: step(client) > 20, "the 20th step")
    (watcher,) = served.watchers()
    served.process.kill()
    served.process.wait()
    plain.wait_for(lambda: not watcher.is_running(), "the end of the watcher whose service was killed", 30.0)
    served.start()
    with Client(served.url, served.token) as client:
        plain.wait_for(lambda: client.job("plain").status_age_s < 3.0 and step(client) > 0, "a step that the new watcher read")
        begun = step(client)
        plain.wait_for(lambda: step(client) > begun + 20, "20 steps more")
        assert list(client.incidents(job="plain")) == []
        scores = next(follow_events(client, job="plain", kinds=["scores"]))
        assert scores.data["state"] == "fresh" and set(scores.data["scores"]) == {"m0", "m1", "m2"}
        site.ranks[1].send_signal(signal.SIGSTOP)
        incident = plain.wait_for(lambda: list(client.incidents(job="plain")), "an incident")[0]
        assert incident.machines == ("m1",) and incident.cause == "stall"
        assert main(["--server", served.url, "--token-file", str(tmp_path / "admin"), "job", "end", "plain", "--reason", "over"]) == 0
        plain.wait_for(lambda: not served.watchers(), "the end of the watcher", 30.0)
        assert [item.id for item in client.incidents(job="plain")] == [incident.id], "its history stays"
    assert [rank.poll() for rank in site.ranks] == [None] * 3, "watching acts on nothing"


@pytest.mark.timeout(120)
@pytest.mark.lab
def test_a_watcher_that_cannot_start_is_told(tmp_path: Path, plain: ModuleType, stack: ExitStack) -> None:
    """Nobody may take a job for watched that is not: here the agents' token has gone."""
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    served = Served(tmp_path, stack)
    served.start()
    (tmp_path / "token").unlink()
    with Client(served.url, served.token) as client:
        client.register_job(b'name = "plain"\n[[machines]]\nname = "m0"\nagent = "http://127.0.0.1:9"\n', "new run")
        told = plain.wait_for(lambda: list(client.events(job="plain", kinds=["degraded"])), "word of it", 60.0)
        assert "the watcher of the job ended" in told[0].what and "token file" in told[0].what
        assert client.job("plain").status is None
