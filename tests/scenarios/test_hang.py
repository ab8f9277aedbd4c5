"""A hang of a script that prints no step and calls nothing of ours, with real processes: a rank that sleeps, one that is stopped, one that
polls; each is found and started again. An evaluation of which no one was told is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from minder.record.incidents import Ledger, kinds

SCRIPT = Path(__file__).parent / "scripts" / "silent_training.py"
RUNS = ("sleep", "stop", "spin", "evaluate")

pytestmark = [pytest.mark.lab, pytest.mark.timeout(290), pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")]


class Silent:
    """One job of two ranks in a folder of its own."""

    def __init__(self, folder: Path, kind: str, stack: ExitStack) -> None:
        self.folder, self.kind = folder, kind
        folder.mkdir()
        self._stack = stack
        self._environment = {
            **os.environ, "MINDER_STATE_DIR": str(folder / "state"), "MINDER_LEDGER": str(folder / "ledger.db"), "OMP_NUM_THREADS": "1",
            "HANG": kind, "MARK": str(folder / "mark"), "HANG_AT": "22", "SECONDS": "30",
        }  # fmt: skip

    def spawn(self, *words: str, name: str) -> subprocess.Popen[bytes]:
        out, err = (self._stack.enter_context((self.folder / f"{name}.{kind}").open("wb")) for kind in ("out", "err"))
        process = subprocess.Popen(
            [sys.executable, "-m", *words], cwd=self.folder, env=self._environment, stdout=out, stderr=err, start_new_session=True
        )
        self._stack.callback(_end_tree, process)
        return process

    def run(self) -> subprocess.Popen[bytes]:
        return self.spawn("minder", "run", "--nproc", "2", "--restart-hung-after", "10", "--", str(SCRIPT), name="run")

    def read(self, name: str) -> str:
        return (self.folder / name).read_text()


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            if child.status() == psutil.STATUS_STOPPED:  # its parent would wait for it
                child.kill()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
    process.wait()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_each_hang_is_found_and_ended_and_an_evaluation_is_left_alone(tmp_path: Path, stack: ExitStack) -> None:
    """All at once: most of the time they wait."""
    jobs = {kind: Silent(tmp_path / kind, kind, stack) for kind in RUNS}
    running = {kind: job.run() for kind, job in jobs.items()}
    torchrun = Silent(tmp_path / "watched", "stop", stack)
    trained = torchrun.spawn("torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT), name="torchrun")
    time.sleep(5.0)
    watcher = torchrun.spawn("minder", "watch", "--pids", str(trained.pid), name="watch")

    assert running["evaluate"].wait(240) == 0, jobs["evaluate"].read("run.err")
    for kind in ("sleep", "stop", "spin"):
        assert running[kind].wait(200) == 0, jobs[kind].read("run.err")
        told = jobs[kind].read("run.err")
        assert "rank 1" in told and "starting generation 2" in told, told
        with Ledger(tmp_path / kind / "ledger.db") as ledger:
            (intent,) = ledger.events(kinds=[kinds.INTENT])
            evidence = ledger.events(kinds=[kinds.EVIDENCE])
            assert intent.payload["action"] == "restart" and any(event.payload["what"] == "evidence" for event in evidence)
            assert [event.payload["outcome"] for event in ledger.events(kinds=[kinds.JOB_ENDED])] == ["finished"]
    assert "starting generation 2" not in jobs["evaluate"].read("run.err"), jobs["evaluate"].read("run.err")
    _assert_the_watcher_named_the_stopped_rank(torchrun, watcher)


def _assert_the_watcher_named_the_stopped_rank(job: Silent, watcher: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + 60.0
    while not (lines := [json.loads(line) for line in job.read("watch.out").splitlines()]):
        assert time.monotonic() < end_s and watcher.poll() is None, job.read("watch.err")
        time.sleep(0.2)
    assert [(line["kind"], line["tier"], line["cause"]) for line in lines] == [("job", "page", "stall")]
    assert any(item["message"].startswith("rank 1: stopped") for item in lines[0]["evidence"]), lines
