"""The service as it is started: where it may listen, and a real one with the client over loopback."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from minder.model.errors import BadInputError
from minder.record.client import Client, follow_events
from minder.record.incidents import Ledger, kinds
from minder.record.store.tokens import TokenRecord, TokenStore, new_id
from serve.app import build_app
from serve.run import Listening, _leave_past_alone, run_service
from serve.settings import Settings
from serve.state import Service

DEADLINE_S = 120.0


def make_token(ledger: str, role: str = "operator") -> str:
    store = TokenStore(ledger)
    token = store.create(TokenRecord(new_id(), role, role, 0.0, "root"))
    store.close()
    return token


def test_the_collector_leaves_alone_what_was_read_of_the_past(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    read = threading.Event()
    with TestClient(build_app(service, read.set)):
        assert read.wait(DEADLINE_S)
    done: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    _leave_past_alone()
    assert done == ["collect", "freeze"]  # what is garbage already would stay for ever


@pytest.mark.parametrize(
    ("listening", "with_token", "said"),
    [
        (Listening("0.0.0.0", 0), False, "no token is valid"),
        (Listening("0.0.0.0", 0, plain=True), False, "no token is valid"),
        (Listening("0.0.0.0", 0), True, "give --tls-cert and --tls-key, or --plain-http"),
        (Listening("::", 0), True, "give --tls-cert"),
        (Listening("example.org", 0), True, "give --tls-cert"),
        (Listening(client_authority="ca.pem"), True, "--tls-client-ca goes with --tls-cert"),
        (Listening(certificate="cert.pem"), True, "both --tls-cert and --tls-key"),
        (Listening(port=0, certificate="nowhere.pem", key="nowhere.pem"), True, "--tls-cert, --tls-key or --tls-client-ca cannot be used"),
    ],
)
def test_nothing_listens_beyond_this_machine_without_a_token_and_being_told_to(
    tmp_path: Path, listening: Listening, with_token: bool, said: str
) -> None:
    ledger = str(tmp_path / "ledger.db")
    if with_token:
        make_token(ledger)
    with pytest.raises(BadInputError, match=said) as caught:
        run_service(Settings(ledger), listening)
    assert "\n" not in str(caught.value)


@pytest.fixture
def url(database: str, tmp_path: Path) -> Iterator[str]:
    """A real service on a ledger in SQLite, and in a real PostgreSQL where there is one."""
    command = [sys.executable, "-m", "minder", "serve", "--listen", "127.0.0.1:0", "--ledger", database]
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(command, stderr=output, stdout=subprocess.DEVNULL)
    try:
        yield wait_for_address(log, process)
    finally:
        process.terminate()
        assert process.wait(30) == 0, log.read_text()


def wait_for_address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline and process.poll() is None:
        if found := [word for word in log.read_text().split() if word.startswith("http://127.0.0.1:")]:
            return found[0].removesuffix(",").removesuffix("/v1")
        time.sleep(0.05)
    raise AssertionError(log.read_text())


@pytest.mark.lab
def test_a_real_service_with_the_client(database: str, url: str) -> None:
    with Ledger(database) as ledger:
        ledger.append(kinds.JOB_REGISTERED, {"machines": ["m1"]}, job="llm")
        with Client(url, make_token(database)) as client:
            assert client.whoami().role == "operator" and [job.name for job in client.jobs()] == ["llm"]
            seen: list[str] = []
            following = threading.Thread(target=lambda: seen.extend(event.kind for event in until(client, kinds.UNPAUSE)), daemon=True)
            following.start()
            assert client.pause("all", None, 3600.0, "firmware").detail.startswith("actions are paused for everything")
            assert [pause.reason for pause in client.pauses()] == ["firmware"]
            client.end_pause("all", None, "done")
            following.join(DEADLINE_S)
            assert seen[-2:] == [kinds.PAUSE, kinds.UNPAUSE]
            assert ledger.history("llm").pauses == ()
            with pytest.raises(BadInputError, match='no incident "llm-9"'):
                client.incident("llm-9")
        with Client(url, "wrong") as stranger, pytest.raises(BadInputError, match="the token is wrong"):
            stranger.whoami()
    assert httpx.get(f"{url}/v1/health").json()["status"] == "ok"


def until(client: Client, kind: str) -> Iterator[object]:
    """Events from the beginning of the ledger up to one of this kind."""
    for event in follow_events(client, since_id=0):
        yield event
        if event.kind == kind:
            return
