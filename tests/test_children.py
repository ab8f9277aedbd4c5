"""A child ends with the process that started it, by the signal that it asked for, however that one ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

# The child says what ended it, where it can.
CHILD = """
import signal, sys, time
def end(*_):
    print("ended by TERM", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(60)
"""
PARENT = """
import subprocess, sys
from functools import partial
from minder.model.children import end_with_parent
subprocess.Popen([sys.executable, "-c", sys.argv[2]], preexec_fn=partial(end_with_parent, int(sys.argv[1]))).wait()
"""


@pytest.mark.parametrize(("number", "last"), [(signal.SIGTERM, "ended by TERM"), (signal.SIGKILL, "up")], ids=["term", "kill"])
def test_a_child_ends_with_its_parent(number: int, last: str) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT, str(int(number)), CHILD], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        os.kill(parent.pid, signal.SIGKILL)
        rest = parent.stdout.read()  # to its end: the child holds the pipe as long as it lives
    assert (["up", *rest.split("\n")[:-1]])[-1] == last
