"""Exits of processes that are not ours, with real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.edge.agent.error_file import read_error_file
from minder.edge.agent.exits import ExitWatch
from minder.edge.exporters.jobs import JobProcess
from minder.model.evidence import Signal


@pytest.fixture
def watch() -> Iterator[tuple[ExitWatch, list[Signal]]]:
    found: list[Signal] = []
    made = ExitWatch("m0", found.extend)
    made.start()
    yield made, found
    made.stop()


def sleeper(code: str = "import time; time.sleep(60)") -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-S", "-c", code])


def test_a_killed_process_is_told_once_with_its_rank(watch: Any, wait: Callable[..., Any]) -> None:
    exits, found = watch
    process = sleeper()
    ranked = JobProcess(process.pid, "j", rank=3, generation=2)
    exits.follow([ranked])
    exits.follow([ranked])
    before_s = time.time()
    process.kill()
    wait(lambda: found, "the exit")
    exits.follow([ranked])  # still a zombie: its number is there
    time.sleep(0.2)
    (exit_,) = found
    assert (exit_.kind, exit_.machine, exit_.rank, exit_.pid, exit_.generation) == ("exit", "m0", 3, process.pid, 2)
    assert exit_.data["vanished"] is True and exit_.data["signal"] == signal.SIGKILL
    assert before_s <= exit_.time_s <= time.time()
    assert exits.is_gone(process.pid)
    process.wait()


@pytest.mark.parametrize("status", [0, 7])
def test_the_status_of_a_zombie_is_read(watch: Any, wait: Callable[..., Any], status: int) -> None:
    exits, found = watch
    process = sleeper(f"import time; time.sleep(0.5); raise SystemExit({status})")
    exits.follow([JobProcess(process.pid, "j", rank=0)])
    wait(lambda: found, "the exit")
    assert (found[0].data["code"], found[0].data["signal"]) == (status, None)
    process.wait()


def test_what_a_rank_left_in_its_error_file_is_told_with_its_end(watch: Any, wait: Callable[..., Any], tmp_path: Path) -> None:
    exits, found = watch
    process, file = sleeper("import time; time.sleep(0.3); raise SystemExit(1)"), tmp_path / "error.json"
    file.write_text(json.dumps({"message": {"message": "KeyError: 'input_ids'", "extraInfo": {"py_callstack": "...", "timestamp": "1"}}}))
    exits.follow([JobProcess(process.pid, "j", rank=0, error_file=str(file))])
    wait(lambda: found, "the exit")
    assert (found[0].data["type"], found[0].data["error"]) == ("KeyError", "'input_ids'") and "KeyError: 'input_ids'" in found[0].message
    process.wait()


def test_only_a_readable_file_of_the_ranks_own_user_is_its_error_file(tmp_path: Path) -> None:
    file = tmp_path / "error.json"
    file.write_text(json.dumps({"message": "torch.OutOfMemoryError: CUDA out of memory.\nTried 2 GiB"}))
    assert read_error_file(str(file), os.geteuid()) == ("OutOfMemoryError", "CUDA out of memory.\nTried 2 GiB")
    assert read_error_file(str(file), os.geteuid() + 1) is None
    (tmp_path / "link").symlink_to(file)
    os.mkfifo(tmp_path / "fifo")
    for name in ("link", "fifo", "none", "."):
        assert read_error_file(str(tmp_path / name), os.geteuid()) is None
    for content in ("", "{", "[]", "{}", '{"message": 3}', '{"message": {}}', '{"message": "no type of it"}'):
        file.write_text(content)
        assert read_error_file(str(file), os.geteuid()) is None


def test_a_launchers_workers_are_its_own_to_tell_of(watch: Any) -> None:
    exits, found = watch
    process = sleeper()
    exits.follow([JobProcess(process.pid, "j", rank=0, slot=0)])
    process.kill()
    process.wait()
    time.sleep(0.3)
    assert found == []


def test_a_pid_that_is_not_there_is_left_alone(watch: Any) -> None:
    exits, found = watch
    process = sleeper("pass")
    process.wait()
    exits.follow([JobProcess(process.pid, "j", rank=0)])
    assert found == [] and not exits.is_gone(os.getpid())
