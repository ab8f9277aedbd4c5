"""Which processes are the job's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from minder.edge.exporters.jobs import JobTable


def _register(run_dir: Path, name: str = "j", **workers: Any) -> None:
    (run_dir / "jobs").mkdir(exist_ok=True)
    fresh = run_dir / "jobs" / f"{name}.tmp"
    fresh.write_text(json.dumps({"job": name, "generation": 2, "launcher_pid": 77, "workers": [{"slot": 0, "rank": 1, **workers}]}))
    fresh.rename(run_dir / "jobs" / f"{name}.json")


def test_the_launchers_registry(tmp_path: Path) -> None:
    _register(tmp_path, pid=os.getpid(), heartbeat="/h", log="/l")
    table = JobTable(tmp_path)
    (process,) = table.read(0.0)
    assert (process.pid, process.job, process.rank, process.slot, process.generation) == (os.getpid(), "j", 1, 0, 2)
    assert table.launchers == (77,)
    _register(tmp_path, pid=os.getpid(), rank=4)
    assert table.read(1.0)[0].rank == 4


def test_processes_that_are_gone_or_not_yet_there_do_not_count(tmp_path: Path) -> None:
    _register(tmp_path, pid=2**22 + 1)
    assert JobTable(tmp_path).read(0.0) == []
    _register(tmp_path, pid=None)
    assert JobTable(tmp_path).read(0.0) == []
    (tmp_path / "jobs" / "j.json").unlink()
    assert JobTable(tmp_path).read(0.0) == []


def test_a_broken_file_keeps_what_was_known(tmp_path: Path) -> None:
    _register(tmp_path, pid=os.getpid())
    table = JobTable(tmp_path)
    assert len(table.read(0.0)) == 1
    (tmp_path / "jobs" / "j.json").write_text('{"job": "j", "workers": [')
    assert len(table.read(1.0)) == 1
    assert JobTable(tmp_path).read(0.0) == []


def test_two_jobs_on_one_machine(tmp_path: Path) -> None:
    _register(tmp_path, "a", pid=os.getpid())
    _register(tmp_path, "b", pid=os.getppid())
    assert sorted(process.job for process in JobTable(tmp_path).read(0.0)) == ["a", "b"]


def test_a_heartbeat_page_is_found_by_pid(tmp_path: Path) -> None:
    page = tmp_path / "heartbeats" / f"pid-{os.getpid()}"
    page.parent.mkdir()
    page.touch()
    (process,) = JobTable(tmp_path, pids=(os.getpid(),)).read(0.0)
    assert process.heartbeat == str(page)
