from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minder.edge.launcher.register import Register
from minder.model.errors import BadInputError


def test_entry_is_replaced_as_a_whole_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "jobs" / "demo.json"
    register = Register(path)
    register.write({"job": "demo", "workers": []})
    assert json.loads(path.read_text()) == {"job": "demo", "workers": []}
    assert sorted(file.name for file in path.parent.iterdir()) == ["demo.json", "demo.lock"]
    register.remove()
    assert not path.exists()


def test_one_launcher_per_job(tmp_path: Path) -> None:
    register = Register(tmp_path / "jobs" / "demo.json")
    with pytest.raises(BadInputError, match="already has a launcher"):
        Register(tmp_path / "jobs" / "demo.json")
    register.remove()
    Register(tmp_path / "jobs" / "demo.json").remove()


def test_only_our_own_orphans_are_ended(tmp_path: Path) -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    env = {**os.environ, "MINDER_HEARTBEAT_FILE": str(tmp_path / "demo-0")}
    orphan = subprocess.Popen(sleep, env=env, start_new_session=True)
    stranger = subprocess.Popen(sleep, start_new_session=True)
    path = tmp_path / "jobs" / "demo.json"
    path.parent.mkdir()
    workers = [{"slot": 0, "pid": orphan.pid, "heartbeat": str(tmp_path / "demo-0")}]
    workers += [{"slot": 1, "pid": stranger.pid, "heartbeat": str(tmp_path / "demo-1")}, {"slot": 2, "pid": None, "heartbeat": "x"}]
    path.write_text(json.dumps({"workers": workers}))
    register = Register(path)
    try:
        assert register.end_orphans() == [orphan.pid]
        assert orphan.wait(10) == -9 and stranger.poll() is None
    finally:
        register.remove()
        for process in (orphan, stranger):
            process.kill()
            process.wait()


def test_a_broken_entry_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "jobs" / "demo.json"
    path.parent.mkdir()
    path.write_text("{half")
    register = Register(path)
    assert register.end_orphans() == []
    register.remove()
