"""docs/ray.md is typed on this machine: a real Ray on loopback, a replay, a watched job and a job that minder starts."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

PAGE, HERE = "ray.md", Path(__file__).parent
MARK = "MINDER_PAGE_OF_RAY"
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0"
SCRIPT = """
import time
import minder

def main():
    for step in range(150):
        time.sleep(0.2)
        minder.heartbeat(step=step, loss=1.0)

minder.run(main)
"""

pytestmark = [pytest.mark.server("ray"), pytest.mark.timeout(900)]


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def of_mark(mark: str) -> list[psutil.Process]:
    """What was begun under this mark: `ray start` leaves daemons, and `ray stop` would end everybody's."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.fixture(scope="module")
def pages(load_file: Callable[[Path], ModuleType]) -> ModuleType:
    return load_file(HERE / "pages.py")


@pytest.fixture(scope="module")
def shell(pages: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A folder with recordings; at its end whatever the page began ends."""
    folder, mark = tmp_path_factory.mktemp("page"), uuid.uuid4().hex
    scratch = tempfile.mkdtemp(prefix="r-", dir="/tmp")  # a socket's path must be short
    made = pages.Shell(folder, ("minder",), **{MARK: mark, "RAY_TMPDIR": scratch, "OMP_NUM_THREADS": "1"})
    (folder / "bin" / "ray").write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "from ray.scripts.scripts import main; main()" "$@"\n')
    (folder / "bin" / "ray").chmod(0o755)
    (folder / "small.toml").write_text(pages.SMALL_JOBS)
    try:
        made.type("minder simulate ./small.toml --out recordings --count 4 --seed 7")
        yield made
    finally:
        for process in of_mark(mark):
            process.kill()
        psutil.wait_procs(of_mark(mark), timeout=30)
        shutil.rmtree(scratch, ignore_errors=True)


@pytest.fixture(scope="module")
def address() -> str:
    return free_address()


@pytest.fixture(scope="module")
def lines(pages: ModuleType, address: str) -> list[str]:
    """On loopback, by the variable that the page names, and without the memory of a node of a cluster."""
    port = address.rpartition(":")[2]
    small = "--num-cpus=2 --object-store-memory=80000000 --disable-usage-stats"
    found = pages.replaced(pages.typed(PAGE), {"10.0.0.7": "127.0.0.1", "6379": port, "--disable-usage-stats": small})
    begins = f"{LOOPBACK} ray start"
    return [line if line.startswith(LOOPBACK) else line.replace("ray start", begins) for line in found]


@pytest.fixture(scope="module")
def cluster(shell: Any, lines: list[str], address: str) -> str:
    """The first node, as the page starts it. On loopback `ray start` refuses a second one; tests/scoring has two."""
    head, other = [line for line in lines if " ray start" in line][:2]
    assert "--head" in head and f"--address={address}" in other
    options = shell.type("ray start --help")
    assert {word.partition("=")[0] for word in other.split() if word.startswith("--")} <= set(re.findall(r"--[\w-]+", options))
    shell.type(head)
    sockets = [item for process in of_mark(shell.variables[MARK]) for item in process.net_connections("tcp")]
    listening = {item.laddr.ip.removeprefix("::ffff:") for item in sockets if item.status == psutil.CONN_LISTEN}
    assert listening and listening <= {"127.0.0.1", "::1"}, "a try on one machine is reached from nowhere else"
    return address


def test_the_page_has_the_commands_that_this_file_types(lines: list[str]) -> None:
    kinds = [" ".join(line.removeprefix(f"{LOOPBACK} ").split()[:2]) for line in lines]
    replay = "minder replay"
    assert kinds == ["pip install", "ray start", "ray start", "minder watch", "minder run", replay, "ray start", replay, "ray stop"]
    trial = next(line for line in reversed(lines) if "--head" in line)
    assert trial == next(line for line in lines if "--head" in line), "the try on one machine is the first node on loopback"


def test_a_replay_says_the_same_on_the_cluster(shell: Any, cluster: str, lines: list[str]) -> None:
    words = {line for line in lines if line.startswith("minder replay")}
    (line,) = words
    expected = shell.type("minder replay recordings")
    assert expected.count('"kind": "machine"') >= 2
    assert said_by_minder(shell.type(line)) == said_by_minder(expected)


def said_by_minder(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("{", "minder:"))]


@pytest.fixture
def machine(shell: Any) -> Iterator[None]:
    """A real agent and launcher, and a job.toml of one machine without [scoring]."""
    agent, launcher = free_address(), free_address()
    (shell.folder / "token").write_text("a" * 32)
    (shell.folder / "token").chmod(0o600)
    (shell.folder / "train.py").write_text(SCRIPT)
    tokens = 'agent_token_file = "token"\nlauncher_token_file = "token"\n'
    listed = f'[[machines]]\nname = "m0"\nagent = "http://{agent}"\nlauncher = "http://{launcher}"\n'
    job = f'name = "llm"\nranks_per_machine = 1\nrendezvous_address = "127.0.0.1"\ncheckpoint_dir = "checkpoints"\n{tokens}{listed}'
    (shell.folder / "job.toml").write_text(job)
    started = [
        shell.start(f"minder agent --machine m0 --gpu off --listen {agent} --token-file token --run-dir run"),
        shell.start(f"minder launch --job llm --machine m0 --listen {launcher} --slots 1 --token-file token --run-dir run -- train.py"),
    ]
    try:
        yield
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=60)


def actors(shell: Any) -> list[str]:
    """Processes in which Ray runs a detector of ours."""
    titles = []
    for process in of_mark(shell.variables[MARK]):
        try:
            titles.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return [title for title in titles if title.startswith("ray::") and "DetectorHost" in title]


def until_there_is_an_actor(shell: Any, process: subprocess.Popen[str], limit_s: float = 120.0) -> None:
    end_s = time.monotonic() + limit_s
    while not actors(shell):
        ended = process.poll() is not None
        assert not ended and time.monotonic() < end_s, f"no actor: {process.communicate()[0][-2000:] if ended else 'it waits'}"
        time.sleep(0.5)


@pytest.mark.lab
def test_a_job_that_minder_starts_and_one_that_it_watches_are_scored_by_an_actor(
    shell: Any, pages: ModuleType, cluster: str, lines: list[str], machine: None
) -> None:
    """By the options and by the table; an actor ends with its controller."""
    run, watch = [next(line for line in lines if line.startswith(f"minder {verb}")) for verb in ("run", "watch")]
    process = shell.start(run)
    try:
        until_there_is_an_actor(shell, process)
        said, _ = process.communicate(timeout=240)
    finally:
        process.kill()
    assert process.returncode == 0, said
    gone_s = time.monotonic() + 60.0
    while actors(shell):
        assert time.monotonic() < gone_s, "the actor of a job that is over still runs"
        time.sleep(0.5)
    (table,) = pages.tables(PAGE)
    assert tomllib.loads(table)["scoring"]["engine"] == "ray"
    job = shell.folder / "job.toml"
    job.write_text(job.read_text() + table.replace("10.0.0.7:6379", cluster))
    for line in (watch, watch.partition(" --engine")[0]):
        process = shell.start(f"{line} --duration 60")
        try:
            until_there_is_an_actor(shell, process)
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        finally:
            process.kill()
