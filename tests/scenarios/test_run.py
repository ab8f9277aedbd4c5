"""`minder run -- script`: a script written for torchrun, on this machine alone, through death, failure and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

SCRIPT = Path(__file__).parent / "scripts" / "plain_training.py"

pytestmark = [pytest.mark.lab, pytest.mark.timeout(280)]


class Run:
    """`minder run` in a folder of its own, as a user types it there."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        (folder / "work").mkdir()
        (folder / "work" / "train.py").write_text(SCRIPT.read_text())

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        streams = [self._stack.enter_context((self.folder / name).open("wb")) for name in ("out", "err")]
        environment = {**os.environ, "MINDER_STATE_DIR": str(self.folder / "state")}
        process = subprocess.Popen(
            [sys.executable, "-m", "minder", "run", *words], cwd=self.folder / "work", env=environment, stdout=streams[0], stderr=streams[1]
        )
        self._stack.callback(self._end, process)
        return process

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            process.kill()
        process.wait()

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def until(self, look: Callable[[], Any], limit_s: float = 120.0) -> Any:
        end_s = time.monotonic() + limit_s
        while not (found := look()):
            assert time.monotonic() < end_s, f"not within {limit_s:.0f} s; {self.err[-2000:]} {self.out[-1000:]}"
            time.sleep(0.05)
        return found

    def left(self) -> list[int]:
        """Processes that carry this run's state folder in command or environment."""
        found = []
        for process in psutil.process_iter():
            try:
                known = [*process.cmdline(), *process.environ().values()]
                if process.status() != psutil.STATUS_ZOMBIE and any(str(self.folder) in word for word in known):
                    found.append(process.pid)
            except psutil.Error:
                continue
        return found


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with ExitStack() as stack:
        made = Run(tmp_path, stack)
        yield made
        assert made.left() == []


def test_a_job_whose_worker_is_killed_is_finished_all_the_same(run: Run) -> None:
    process = run.start("--nproc", "2", "--", "python3", "train.py", "20", "0.1", "8")
    assert process.wait(200) == 0, run.err
    assert "[rank 0]  [1970-01-01 00:00:00] iteration       20/      20" in run.out
    assert "failed first: rank 1: ended by SIGKILL" in run.err
    assert run.out.count("iteration        3/") == 2, "the script keeps no checkpoint: it began again, once"
    assert (run.folder / "work" / "crashed").exists(), "the working directory is the user's own"


def test_a_loss_that_jumps_is_told_once_and_the_job_goes_on(run: Run) -> None:
    """The script knows nothing of us: its log says it."""
    script = "import sys, time\nfor step in range(160):\n    time.sleep(0.1)\n"
    script += "    print(f'iter {step}: loss {40.0 if 40 <= step < 44 else 3.0:.4f}, time 100.00ms', flush=True)\n"
    (run.folder / "work" / "train.py").write_text(script)
    process = run.start("--nproc", "2", "--", "train.py")
    assert process.wait(200) == 0, run.err
    assert run.err.count("the job computes wrong numbers") == 1, run.err


def test_a_script_that_always_fails_ends_with_one_line_and_status_1(run: Run) -> None:
    (run.folder / "work" / "train.py").write_text("import os\nprint('begins in', os.getcwd())\nraise ValueError('no such data set')\n")
    process = run.start("--max-restarts", "1", "--", "train.py")
    assert process.wait(200) == 1
    assert run.out.count(f"[rank 0] begins in {run.folder / 'work'}") == 2
    last = run.err.strip().splitlines()[-1]
    assert "job local failed" in last and "ValueError: no such data set" in last and "1 of 1 restarts without progress are used up" in last
    assert "Traceback" not in run.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_its_command(run: Run, number: signal.Signals) -> None:
    process = run.start("--nproc", "2", "--", "train.py", "100000", "0.1")
    run.until(lambda: "iteration        3/" in run.out)
    process.send_signal(number)
    assert process.wait(60) == (-number if number == signal.SIGKILL else 130)
    allowed = 1 if number == signal.SIGKILL else 0  # the store's host outlives a killed controller: the next run takes it over
    run.until(lambda: len(run.left()) <= allowed, 30.0)
    if allowed:
        (run.folder / "work" / "train.py").write_text("print('second run')")
        assert run.start("--nproc", "2", "--", "train.py").wait(120) == 0
        assert run.out.count("second run") == 2
