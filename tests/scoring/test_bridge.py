"""The process that talks to Ray: where there is no Ray it says so, ever more slowly, and is gone when it is closed. Needs no Ray."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import psutil
import pytest

from minder.diagnose.scoring.bridge import Bridge
from minder.model.errors import ScoringLostError


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    bridge = Bridge(f"127.0.0.1:{port}", 0.1)
    yield bridge
    bridge.close()


def why(bridge: Bridge) -> str:
    with pytest.raises(ScoringLostError) as caught:
        bridge.send("job", b"").result(60.0)
    return str(caught.value)


def test_where_nobody_listens_that_is_said_and_not_tried_at_once_again(bridge: Bridge) -> None:
    assert "no Ray at 127.0.0.1:" in why(bridge)
    assert "Connection refused" in why(bridge)
    assert bridge.pid is None


def test_a_process_that_is_killed_fails_what_was_asked_of_it_and_no_more(bridge: Bridge) -> None:
    asked = bridge.send("job", b"")
    assert bridge.pid is not None
    psutil.Process(bridge.pid).kill()
    with pytest.raises(ScoringLostError, match="the process that talks to Ray ended"):
        asked.result(60.0)


def test_nothing_of_it_is_left_when_it_is_closed(bridge: Bridge) -> None:
    bridge.send("job", b"")
    pid = bridge.pid
    assert pid is not None
    bridge.close()
    deadline = time.monotonic() + 30.0
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)
    why(bridge)
    assert bridge.pid is None
