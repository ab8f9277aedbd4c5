"""A child ends with the process that started it, by the signal that it asked for, however that one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

# The child says what ended it, where it can.
CATCHES = """
import signal, sys, time
def end(*_):
    print("ended by TERM", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(20)
print("left alone", flush=True)
"""
CATCHES_NOTHING = 'import time; print("up", flush=True); time.sleep(20); print("left alone", flush=True)'
PARENT = """
import signal, subprocess, sys
from functools import partial
from minder.model.children import end_with_parent
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", sys.argv[2]], preexec_fn=partial(end_with_parent, int(sys.argv[1]))).wait()
"""


@pytest.mark.parametrize(
    ("number", "child", "last"),
    [(signal.SIGTERM, CATCHES, "ended by TERM"), (signal.SIGTERM, CATCHES_NOTHING, "up"), (signal.SIGKILL, CATCHES, "up")],
    ids=["term, caught", "term, not caught, and ignored by the parent", "kill"],
)
def test_a_child_ends_with_its_parent(number: int, child: str, last: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(int(number)), child], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        os.kill(parent.pid, signal.SIGKILL)
        rest = parent.stdout.read()  # to its end: the child holds the pipe as long as it lives
    assert (["up", *rest.split("\n")[:-1]])[-1] == last
