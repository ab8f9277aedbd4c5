"""Steps out of a log that grows, is emptied, renamed, or not there yet."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from minder.edge.agent.steplog import StepLog
from minder.model.errors import BadInputError


def line(step: int, loss: float = 2.0) -> str:
    return f" iteration {step:8d}/ 1000 | elapsed time per iteration (ms): 100.0 | lm loss: {loss:.3E} |\n"


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_what_was_there_before_is_not_todays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(line(500))
    log = StepLog(path)
    log.poll(1.0)
    assert log.steps is None
    append(path, line(501, 1.5))
    log.poll(2.0)
    append(path, line(502, 1.25) + "noise\n")
    log.poll(3.0)
    assert log.steps is not None
    assert (log.steps.step, log.steps.time_s, log.steps.first_step, log.steps.first_time_s, log.steps.loss) == (502, 3.0, 501, 2.0, 1.25)


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    log = StepLog(path)
    log.poll(0.0)
    append(path, line(7)[:30])
    log.poll(1.0)
    assert log.steps is None
    append(path, line(7)[30:])
    log.poll(2.0)
    assert log.steps is not None and log.steps.step == 7


def test_a_log_that_comes_later_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "log")
    log.poll(0.0)
    append(tmp_path / "log", line(1) + line(2))
    log.poll(1.0)
    assert log.steps is not None and log.steps.step == 2


def test_a_renamed_log_is_followed_to_its_end_and_then_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    log = StepLog(path)
    log.poll(0.0)
    append(path, line(10))
    path.rename(tmp_path / "log.1")
    log.poll(1.0)
    assert log.steps is not None and log.steps.step == 10
    append(tmp_path / "log.1", line(11))
    append(path, line(12))
    log.poll(2.0)
    assert log.steps.step == 12


def test_an_emptied_log_is_read_again_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("x" * 1000)
    log = StepLog(path)
    log.poll(0.0)
    path.write_text(line(3))
    log.poll(1.0)
    assert log.steps is not None and log.steps.step == 3


def test_a_step_that_falls_back_is_a_resumed_job(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    log = StepLog(path)
    log.poll(0.0)
    append(path, line(50))
    log.poll(1.0)
    append(path, line(41))
    log.poll(2.0)
    assert log.steps is not None and log.steps.step == 50, "so soon it is another rank's line"
    append(path, line(42))
    log.poll(60.0)
    assert log.steps is not None and (log.steps.step, log.steps.first_step, log.steps.first_time_s) == (42, 42, 60.0)
    log.forget()
    assert log.steps is None


BAR = """
import sys
from tqdm import tqdm
training = tqdm(total=1000, mininterval=0)
for step in range(40):
    training.update()
    if step == 20:
        evaluation = tqdm(total=50, mininterval=0, leave=False, position=1)
        evaluation.update(30)
        evaluation.close()
sys.stdin.read()
"""


def test_a_progress_bar_is_followed_while_it_is_drawn(tmp_path: Path) -> None:
    """A real one ends no line before its job ends: what it drew last but one is known all the same. An evaluation's bar is no step."""
    path = tmp_path / "log"
    path.touch()
    log = StepLog(path)
    log.poll(0.0)
    with path.open("wb") as output:
        job = subprocess.Popen([sys.executable, "-c", BAR], stdin=subprocess.PIPE, stderr=output)
    try:
        end_s = time.monotonic() + 60.0
        while log.steps is None or log.steps.step < 39:
            assert time.monotonic() < end_s and job.poll() is None, path.read_text()
            log.poll(1.0)
            time.sleep(0.02)
    finally:
        job.communicate(b"")
    assert job.returncode == 0 and log.steps is not None and log.steps.step <= 40


def test_a_sites_own_lines(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.touch()
    log = StepLog(path, r"done (?P<step>\d+)")
    log.poll(0.0)
    append(path, line(9) + "done 4\n")
    log.poll(1.0)
    assert log.steps is not None and log.steps.step == 4
    with pytest.raises(BadInputError, match="step"):
        StepLog(path, "no group")


def test_a_pipe_instead_of_a_log_does_not_block(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "log")
    log = StepLog(tmp_path / "log")
    log.poll(0.0)
    assert log.steps is None
    log.stop()
