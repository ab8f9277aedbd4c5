"""How a worker process starts, and how it ends with the launcher."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Start = Callable[..., Any]


def test_unchanged_script_waits_before_its_first_line(worker: Start) -> None:
    found = worker("import os, sys\nprint(os.environ['RANK'], __name__, sys.argv[1:], 'MINDER_CONTROL_FD' in os.environ)", "bootstrap")
    found.hear("hello")
    found.hear("waiting")
    found.assign(2, RANK="7")
    assert found.hear("running") == {"kind": "running", "generation": 2, "in_place": False}
    assert found.hear("done")["generation"] == 2
    assert found.end() == (0, "7 __main__ ['argument'] False\n")


_TORCH = """
class _Square(float):
    __matmul__ = lambda self, other: self
    sum = lambda self: 512.0
class cuda:
    @staticmethod
    def set_device(index):
        print("device", index, flush=True)
        if index > 3:
            raise RuntimeError("CUDA error: invalid device ordinal\\nmore lines")
ones = lambda *size, device: _Square()
"""


@pytest.mark.parametrize(("slot", "comes_up"), [("3", True), ("4", False)])
def test_a_process_whose_gpu_does_not_start_never_comes_to_the_barrier(
    worker: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slot: str, comes_up: bool
) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(_TORCH)
    (tmp_path / "torch" / "distributed.py").write_text("")
    monkeypatch.setattr("tests.worker.conftest.NO_TORCH", tmp_path)
    monkeypatch.setenv("MINDER_START_DEVICE", slot)
    found = worker("import os\nprint('MINDER_START_DEVICE' in os.environ)", "bootstrap")
    found.hear("hello")
    if comes_up:
        found.hear("waiting")
        found.assign(1)
        assert found.end() == (0, "device 3\nFalse\n")
    else:
        status, output = found.end()
        assert status == 1 and "GPU 4 does not start: RuntimeError: CUDA error: invalid device ordinal\n" in output


def test_run_takes_the_place_that_the_bootstrap_waited_for(worker: Start) -> None:
    found = worker("import os, minder\nminder.run(lambda: print('rank', os.environ['RANK']))", "bootstrap")
    found.hear("hello"), found.hear("waiting")
    found.assign(0, RANK="1")
    assert found.hear("running")["in_place"] is False
    assert found.hear("running")["in_place"] is True
    found.hear("done")
    assert found.end() == (0, "rank 1\n")


def test_failing_script_is_reported_once_and_exits_with_1(worker: Start) -> None:
    found = worker("raise RuntimeError('Connection reset by peer')", "bootstrap")
    found.hear("hello"), found.hear("waiting")
    found.assign(0)
    found.hear("running")
    assert found.hear("exception")["victim"] is True
    status, output = found.end()
    assert status == 1 and "Traceback" in output


def test_script_without_run_is_told_how_to_be_launched(worker: Start) -> None:
    found = worker("print('hello')", "script")
    status, output = found.end()
    assert status == 0 and "--barrier bootstrap" in output


def test_worker_ends_when_its_channel_ends(worker: Start) -> None:
    found = worker("import time; time.sleep(600)", "bootstrap")
    found.hear("hello"), found.hear("waiting")
    found.hang_up()
    assert found.end()[0] == -9


def test_worker_of_a_dead_launcher_does_not_start(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('ran')")
    command = [sys.executable, "-m", "minder.edge.worker.bootstrap", str(script)]
    found = subprocess.run(command, env={"MINDER_LAUNCHER_PID": "1"}, capture_output=True, text=True, timeout=30, check=False)
    assert found.returncode == 1 and found.stdout == ""
