"""`minder.run(main)`: one call of main per generation, in one process, whatever main was doing when it was interrupted."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from minder.wire.heartbeat import read_heartbeat

Start = Callable[..., Any]

LOOP = """
import os, subprocess, time, minder
def main():
    print("main", os.environ["MINDER_GENERATION"], os.environ.get("EXTRA"), flush=True)
    minder.heartbeat(int(os.environ["MINDER_GENERATION"]))
    if os.environ["MINDER_GENERATION"] == "9":
        return
    BODY
minder.run(main)
print("after", flush=True)
"""


def _wait_step(worker: Any, step: int) -> None:
    deadline_s = time.monotonic() + 30.0
    while time.monotonic() < deadline_s:
        last = read_heartbeat(worker.page).last
        if last is not None and last.step == step:
            return
        time.sleep(0.01)
    raise AssertionError(f"step {step} did not come")


def _interrupt_once(worker: Any) -> str:
    pid = worker.hear("hello")["pid"]
    assert worker.hear("waiting")["generation_done"] == -1
    worker.assign(0, MINDER_GENERATION="0", EXTRA="old", RANK="2")
    assert worker.hear("running") == {"kind": "running", "generation": 0, "in_place": True}
    _wait_step(worker, 0)
    worker.tell("interrupt", generation=0, deadline_s=10.0)
    assert worker.hear("waiting")["generation_done"] == 0
    worker.assign(9, MINDER_GENERATION="9", RANK="1")
    worker.hear("running")
    worker.hear("done")
    status, output = worker.end()
    view = read_heartbeat(worker.page)
    assert status == 0 and (view.pid, view.rank, view.generation) == (pid, 1, 9)
    assert [record.step for record in view.recent] == [9]
    return str(output)


@pytest.mark.parametrize(
    "body",
    [
        "time.sleep(600)",
        "while True: pass",
        "import threading; threading.Event().wait()",
        "import socket; b = socket.create_server(('127.0.0.1', 0)); socket.create_connection(b.getsockname()).recv(1); time.sleep(600)",
        "child = subprocess.Popen(['sleep', '600'])\n    minder.heartbeat(0)\n    try: child.wait()\n    finally: child.kill()",
    ],
    ids=["sleep", "computing", "lock", "socket", "child"],
)
def test_main_is_brought_back_from_anywhere(worker: Start, body: str) -> None:
    script = LOOP.replace("BODY", body)
    if "child" in body:  # the interrupt must find the child started: half a Popen leaves an orphan, whoever raises into it
        script = script.replace('    minder.heartbeat(int(os.environ["MINDER_GENERATION"]))\n', "", 1)
        script = script.replace('== "9":', '== "9":\n        minder.heartbeat(9)')
    output = _interrupt_once(worker(script))
    assert output.splitlines() == ["main 0 old", "main 9 None", "after"]


def test_main_that_swallows_exceptions_is_brought_back_too(worker: Start) -> None:
    body = """
    while True:
        try:
            time.sleep(600)
        except Exception:
            pass"""
    assert "after" in _interrupt_once(worker(LOOP.replace("BODY", body)))


def test_main_that_swallows_everything_once_is_interrupted_again(worker: Start) -> None:
    body = """
    try:
        time.sleep(600)
    except BaseException:
        print("swallowed", flush=True)
    time.sleep(600)"""
    found = worker(LOOP.replace("BODY", body))
    assert "after" in _interrupt_once(found)


def test_a_process_that_cannot_be_torn_down_ends_and_joins_no_further_generation(worker: Start) -> None:
    code = """
from minder.edge.worker import barrier
class OddError(Exception): pass
def tear_down(*rest): raise OddError("a group that is neither there nor gone")
barrier.tear_down = tear_down
"""
    found = worker(code + LOOP.replace("BODY", "raise ValueError('no data')"))
    found.hear("hello"), found.hear("waiting")
    found.assign(0, MINDER_GENERATION="0")
    found.hear("running"), found.hear("exception")
    status, output = found.end()
    assert status == 75 and "neither there nor gone" in output and "after" not in output


def test_connections_of_the_generation_are_cut_and_older_ones_stay(worker: Start) -> None:
    code = """
import socket, time, minder
server = socket.create_server(("127.0.0.1", 0))
def connect():
    near = socket.create_connection(server.getsockname()); far, _ = server.accept()
    return near, far
old = connect()
calls = []
def main():
    calls.append(connect())
    if len(calls) == 2:
        old[0].send(b"x"); print("old", old[1].recv(1), flush=True)
        calls[0][1].settimeout(5); print("new", calls[0][1].recv(1), flush=True)
        return
    minder.heartbeat(0)
    calls[0][0].recv(1)
    time.sleep(600)
minder.run(main)
"""
    found = worker(code)
    found.hear("hello"), found.hear("waiting")
    found.assign(0)
    found.hear("running")
    _wait_step(found, 0)
    found.tell("interrupt", generation=0, deadline_s=10.0)
    found.hear("waiting")
    found.assign(1)
    found.hear("running")
    found.hear("done")
    status, output = found.end()
    assert status == 0 and output.splitlines() == ["old b'x'", "new b''"]


def test_own_exception_is_reported_and_the_process_stays(worker: Start) -> None:
    code = """
import os, minder
def main():
    minder.heartbeat(41)
    if os.environ["MINDER_GENERATION"] == "0":
        raise ValueError("a bug")
minder.run(main)
"""
    found = worker(code)
    found.hear("hello"), found.hear("waiting")
    found.assign(0, MINDER_GENERATION="0")
    found.hear("running")
    error = found.hear("exception")
    assert (error["type"], error["message"], error["victim"], error["generation"], error["step"]) == ("ValueError", "a bug", False, 0, 41)
    assert error["fingerprint"] == "ValueError|python:|script:main" and "script.py" in error["traceback_tail"]
    found.hear("waiting")
    found.assign(1, MINDER_GENERATION="1")
    found.hear("running"), found.hear("done")
    assert found.end()[0] == 0


def test_nonfinite_gradient_is_told_as_such(worker: Start) -> None:
    code = """
import minder
from minder.edge.worker import NonFiniteGradient
def main(): raise NonFiniteGradient("nan in my own gradient")
minder.run(main)
"""
    found = worker(code)
    found.hear("hello"), found.hear("waiting")
    found.assign(0)
    found.hear("running")
    assert found.hear("nonfinite")["what"] == "gradient"
    assert found.hear("exception")["victim"] is False


def test_stale_assignment_is_not_begun(worker: Start) -> None:
    found = worker("import minder\nminder.run(lambda: print('ran'))")
    found.hear("hello"), found.hear("waiting")
    found.tell("interrupt", generation=4, deadline_s=1.0)
    found.assign(4)
    found.hear("waiting")
    found.assign(5)
    assert found.hear("running")["generation"] == 5
    found.hear("done")
    assert found.end() == (0, "ran\n")


@pytest.mark.parametrize(("ending", "done", "status"), [("sys.exit(0)", True, 0), ("sys.exit(3)", False, 3), ("pass", True, 0)])
def test_exit_status_of_main_is_kept(worker: Start, ending: str, done: bool, status: int) -> None:
    found = worker(f"import sys, minder\ndef main(): {ending}\nminder.run(main)")
    found.hear("hello"), found.hear("waiting")
    found.assign(0)
    found.hear("running")
    if done:
        found.hear("done")
    assert found.end()[0] == status


def test_end_at_the_barrier_is_a_quiet_exit(worker: Start) -> None:
    found = worker("import minder\nprint(minder.run(lambda: 1))")
    found.hear("hello"), found.hear("waiting")
    found.tell("end")
    assert found.end() == (0, "None\n")


def test_without_a_launcher_main_is_called_once() -> None:
    code = "import minder; print(minder.run(lambda: 'result'))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert found.stdout == "result\n"
