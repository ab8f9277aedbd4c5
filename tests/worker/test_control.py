from __future__ import annotations

import os
import socket

from minder.edge.worker.control import Control


def test_a_full_channel_drops_instead_of_blocking() -> None:
    ours, theirs = socket.socketpair()
    control = Control(theirs)
    sent = 0
    while control.send("exception", message="x" * 50_000):
        sent += 1
        assert sent < 10_000
    ours.close()
    theirs.close()


def test_a_forked_child_cannot_speak_for_its_parent() -> None:
    ours, theirs = socket.socketpair()
    control = Control(theirs)
    child = os.fork()
    if child == 0:
        os._exit(1 if control.send("done", generation=0) else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert control.send("hello", pid=os.getpid())
    assert ours.recv(1000).count(b"\n") == 1
    ours.close()
    theirs.close()


def test_a_gone_launcher_is_no_error() -> None:
    ours, theirs = socket.socketpair()
    control = Control(theirs)
    ours.close()
    assert control.send("hello", pid=1) is False
    theirs.close()
