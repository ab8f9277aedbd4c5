"""Callers without a token: slow heads and bodies are given up, connections are capped where they are accepted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import uvicorn

from minder.edge import listening
from minder.edge.listening import Doorway, PatientLoop, PatientProtocol, serving_options
from minder.wire.contact_log import RefusedCallers
from minder.wire.tls import ServerTls

SHORT_S = 0.3


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """After the whole body, unless it is not wanted."""
    while scope["path"] == "/body" and (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Impatient(PatientProtocol):
    head_s = body_s = SHORT_S
    refused = RefusedCallers(logging.getLogger("minder.test"))


class Site:
    """A server in a thread of its own, and raw connections to it."""

    def __init__(self, tls: dict[str, Any] | None = None, **bounds: int | None) -> None:
        self.listener = Doorway("127.0.0.1", 0, **bounds)  # type: ignore[arg-type]
        config = uvicorn.Config(answer, lifespan="off", **serving_options() | {"http": Impatient}, timeout_keep_alive=30, **(tls or {}))
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        self.open: list[socket.socket] = []

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=PatientLoop) as runner:
            runner.run(self.server.serve(sockets=[self.listener]))

    def connect(self, text: str = "") -> socket.socket:
        self.open.append(socket.create_connection(self.listener.getsockname(), timeout=10.0))
        self.open[-1].sendall(text.encode())
        return self.open[-1]

    def close(self) -> None:
        for each in self.open:
            each.close()
        self.server.should_exit = True
        self.thread.join(10.0)


@pytest.fixture
def site() -> Iterator[Callable[..., Site]]:
    with contextlib.ExitStack() as stack:

        def make(tls: dict[str, Any] | None = None, **bounds: int | None) -> Site:
            made = Site(tls, **bounds)
            stack.callback(made.close)
            return made

        yield make


def ends(connection: socket.socket) -> bool:
    """Whether the other side closes it, within ten seconds."""
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


GET = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "sent", ["", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n", "POST /body HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc"]
)
def test_a_request_that_does_not_come_is_given_up(site: Callable[..., Site], sent: str, caplog: pytest.LogCaptureFixture) -> None:
    assert ends(site().connect(sent))
    lines = [record.minder_fields for record in caplog.records if record.getMessage() == "caller refused"]  # type: ignore[attr-defined]
    assert lines == [] or lines[0]["reason"] == ("slow body" if sent.startswith("POST") else "slow headers")


def test_a_head_that_trickles_is_given_up_too_also_on_a_connection_that_was_kept(site: Callable[..., Site]) -> None:
    connection = site().connect(GET)
    got = b""
    while not got.endswith(b"ok"):
        got += connection.recv(1000)
    time.sleep(2 * SHORT_S)  # idle, as between two polls: that is allowed
    connection.sendall(GET.encode())
    assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    connection.settimeout(0.05)
    end_s = time.monotonic() + 10.0
    with pytest.raises(ConnectionError):
        while time.monotonic() < end_s:
            connection.sendall(b"X")
            with contextlib.suppress(TimeoutError):
                if connection.recv(1000) == b"":
                    raise ConnectionResetError
    assert time.monotonic() < end_s


def test_a_tls_handshake_that_does_not_come_is_given_up(
    site: Callable[..., Site], tmp_path: Path, load_file: Callable[[Path], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HEAD_S", SHORT_S)
    load_file(Path(__file__).parents[1] / "certificates.py").make(tmp_path, "machine", None)
    here = site(ServerTls(str(tmp_path / "machine.pem"), str(tmp_path / "machine.key")).options(), most=1, most_of_one=None)
    silent = here.connect()
    assert ends(here.connect()), "it counts before its handshake"
    assert ends(silent)


def test_connections_are_capped_before_they_are_read_and_there_is_room_again(site: Callable[..., Site]) -> None:
    here = site(most=3, most_of_one=None)
    for _ in range(3):
        here.connect(GET).recv(1000)
    assert ends(here.connect())
    here.open[0].close()
    for _ in range(100):
        got = here.connect(GET)
        with contextlib.suppress(ConnectionError):
            if got.recv(1000).startswith(b"HTTP/1.1 200"):
                break
        time.sleep(0.02)
    else:
        pytest.fail("no room after one had left")


def test_one_address_has_a_share(site: Callable[..., Site]) -> None:
    here = site(most=50, most_of_one=2)
    for _ in range(2):
        here.connect(GET).recv(1000)
    assert ends(here.connect())


def test_refused_callers_cannot_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    refused = RefusedCallers(logging.getLogger("minder.test"), lambda: now_s[0])
    for number in range(5000):
        refused.note(f"2001:db8::{number:x}", "token", "/v1/workers")
    lines = [record for record in caplog.records if record.getMessage() == "caller refused"]
    assert len(lines) == 60
    now_s[0] = 61.0
    refused.note("10.0.0.9", "token", "/v1/workers")
    assert caplog.records[-1].minder_fields["lines_left_out"] == 4940  # type: ignore[attr-defined]
