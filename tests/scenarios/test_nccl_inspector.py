"""The trigger by what NCCL completes: two processes that write the Inspector's files while two real agents read them, and a watcher."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from minder.diagnose.verdicts.flows import data_flows, flow_lines
from minder.ingest.sources.recording import read_recording
from minder.record.incidents import Ledger, kinds

SCRIPT = Path(__file__).parent / "scripts" / "inspected_ring.py"
ROUNDS_PER_STEP = 40  # a step takes over four seconds: ten times that long, nobody would miss one

pytestmark = [pytest.mark.lab, pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end(process: subprocess.Popen[Any]) -> None:
    if process.poll() is None:
        process.kill()
    process.wait()


def wait_for(look: Callable[[], Any], what: str, limit_s: float = 90.0) -> Any:
    end_s = time.monotonic() + limit_s
    while not (found := look()):
        assert time.monotonic() < end_s, f"{what} did not come within {limit_s:.0f} s"
        time.sleep(0.1)
    return found


class Site:
    """Two ranks, an agent for each, and a watcher. Everything ends with the test."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        ring, ports = free_port(), [free_port(), free_port()]
        self.ranks = [self._rank(rank, ring) for rank in range(2)]
        for machine, port in enumerate(ports):
            pid = str(self.ranks[machine].pid)
            flags = [
                "--listen",
                f"127.0.0.1:{port}",
                "--machine",
                f"m{machine}",
                "--run-dir",
                str(folder / f"run{machine}"),
                "--gpu",
                "off",
            ]
            flags += ["--pids", pid, "--processes-of", pid, "--nccl-inspector", str(folder / f"inspector-{machine}")]
            self._minder("agent", *flags, *(["--log", str(folder / "rank0.log")] if machine == 0 else []))
        machines = "\n".join(f'[[machines]]\nname = "m{index}"\nagent = "http://127.0.0.1:{port}"' for index, port in enumerate(ports))
        head = f'name = "ring"\nstate_dir = "{folder}/state"\nrecord_dir = "{folder}/recording"\n'
        (folder / "job.toml").write_text(head + machines)
        self.watcher = self._minder("watch", "--job", str(folder / "job.toml"))

    def _rank(self, rank: int, port: int) -> subprocess.Popen[Any]:
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, str(SCRIPT), str(rank), str(port), str(self.folder), str(ROUNDS_PER_STEP)]
        return self._spawn(command, f"rank{rank}.log", **place)

    def _minder(self, *words: str) -> subprocess.Popen[Any]:
        return self._spawn([sys.executable, "-m", "minder", *words], f"{words[0]}.log")

    def _spawn(self, command: list[str], log: str, **environment: str) -> subprocess.Popen[Any]:
        output = self._stack.enter_context((self.folder / log).open("ab"))
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}, cwd=self.folder)
        self._stack.callback(end, process)
        return process

    def status(self) -> dict[str, Any]:
        try:
            return dict(json.loads((self.folder / "state" / "watch" / "status.json").read_text()))
        except (OSError, ValueError):
            return {}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(tmp_path, stack)


@pytest.mark.release
@pytest.mark.timeout(280)
def test_operations_that_come_half_as_often_alarm_between_two_steps_and_the_table_says_where_the_bytes_are(site: Site) -> None:
    """Steps are too far apart for a window of ten seconds, and go on: nobody is named. The Inspector's records show it at once."""
    wait_for(lambda: int(site.status().get("step") or 0) >= 15, "the 15th step", 150.0)
    assert site.status()["alarm"] == ""
    (site.folder / "slow").touch()
    alarm = wait_for(lambda: site.status().get("alarm"), "an alarm", 60.0)
    assert alarm.startswith("straggler alarm: NCCL operations twice as far apart") and "2 of 2 sampled ranks" in alarm
    time.sleep(3.0)
    site.watcher.send_signal(signal.SIGINT)
    assert site.watcher.wait(30) == 0
    sightings = read_recording(site.folder / "recording").sightings
    lines = [line for sight in sightings if sight.flows for line in flow_lines(data_flows(sight.flows))]
    states = {line.state for line in lines if (line.sender, line.receiver) == ("m0", "m1")}
    assert states & {"not read", "not transmitted"}, f"rank 1 leaves its socket unread; what does not fit stays at rank 0: {states}"
    with Ledger(site.folder / "state" / "ledger.db", create=False) as ledger:
        assert any(alarm == event.payload["text"] for event in ledger.events(kinds=[kinds.NOTE]))
