from __future__ import annotations

import os
import sys
import time
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest

from minder.edge.launcher import spawn
from minder.edge.launcher.settings import LaunchSettings
from minder.model.resources import child_python_path


def _settings(tmp_path: Path, **changes: object) -> LaunchSettings:
    script = tmp_path / "script.py"
    script.write_text("import time; time.sleep(600)")
    plain = {"job": "demo", "machine": "m1", "host": "127.0.0.1", "port": 0, "slots": 1, "command": (str(script),)}
    return LaunchSettings(**{**plain, "run_dir": tmp_path, "log_dir": tmp_path, **changes})  # type: ignore[arg-type]


def _end(spawned: spawn.Spawned) -> None:
    spawned.process.kill()
    spawned.process.wait()
    spawned.channel.close()
    os.close(spawned.pidfd)


def test_worker_joins_its_group_in_every_hierarchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    procs = [tmp_path / "tree" / hierarchy / "m1" / "cgroup.procs" for hierarchy in ("cpu", "memory")]
    for file in procs:
        file.parent.mkdir(parents=True)
        file.touch()
    monkeypatch.setattr(spawn, "_CGROUPS", tmp_path / "tree")
    spawned = spawn.spawn_worker(_settings(tmp_path, cgroup="m1"), tmp_path / "page", tmp_path / "log", False)
    _end(spawned)
    assert [file.read_text() for file in procs] == [str(spawned.process.pid)] * 2


def test_missing_cgroup_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "_CGROUPS", tmp_path / "tree")
    with pytest.raises(OSError, match="no cgroup m9"):
        spawn.spawn_worker(_settings(tmp_path, cgroup="m9"), tmp_path / "page", tmp_path / "log", False)
    assert not (tmp_path / "log").exists()


def test_environment_of_the_job_wins_over_defaults_and_ours_over_all(tmp_path: Path) -> None:
    settings = _settings(tmp_path, env={"OMP_NUM_THREADS": "4", "MINDER_MACHINE": "other"}, start_device=True)
    spawned = spawn.spawn_worker(settings, tmp_path / "page", tmp_path / "log", False, slot=2)
    environ = Path(f"/proc/{spawned.process.pid}/environ")
    while b"MINDER_JOB" not in environ.read_bytes() and spawned.process.poll() is None:
        time.sleep(0.01)  # Popen returns a moment before the new program has its environment
    raw = environ.read_bytes().decode()
    _end(spawned)
    env = dict(pair.split("=", 1) for pair in raw.split("\0") if pair)
    assert env["MINDER_START_DEVICE"] == "2", "the GPU with the number of its slot"
    assert env["OMP_NUM_THREADS"] == "4" and env["MINDER_MACHINE"] == "m1" and env["MINDER_LAUNCHER_PID"] == str(os.getpid())
    assert env["MINDER_HEARTBEAT_FILE"] == str(tmp_path / "page")


def test_a_file_beside_the_job_that_is_called_like_a_module_of_python_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script's folder is importable as with plain python; the current folder is not, before the script runs or after."""
    here, home, fake = (tmp_path / name for name in ("here", "home", "fake"))
    for folder in (here, home, fake / "torch"):
        folder.mkdir(parents=True)
    (here / "queue.py").write_text("raise RuntimeError('the wrong queue')")
    (home / "sibling.py").write_text("WORD = 'from the script folder'")
    for name in ("__init__", "distributed"):
        (fake / "torch" / f"{name}.py").write_text("")  # the real one takes seconds
    script = home / "train.py"
    script.write_text("import os, queue, sys, sibling\nprint(sibling.WORD, os.getcwd() in sys.path, sys.path[0], flush=True)")
    monkeypatch.chdir(here)
    path = os.pathsep.join([str(fake), str(Path(spawn.__file__).parents[3])])
    settings = _settings(tmp_path, command=(str(script),), barrier="script", env={"PYTHONPATH": path})
    spawned = spawn.spawn_worker(settings, tmp_path / "run" / "page", tmp_path / "log", False)
    spawned.process.wait(30)
    said = (tmp_path / "log").read_text()
    _end(spawned)
    assert f"from the script folder False {home}" in said


@pytest.mark.parametrize("mapped", [False, True])
def test_a_checkout_used_from_its_folder_is_on_the_path_of_workers_unless_an_install_maps_it(
    monkeypatch: pytest.MonkeyPatch, mapped: bool
) -> None:
    """On the path its `datasets/` would pass for the package of that name."""
    root = Path(spawn.__file__).parents[3]
    spec = ModuleSpec("minder", None, origin=str(root / "minder" / "__init__.py"))
    finder = SimpleNamespace(find_spec=lambda name, path: spec if mapped and name == "minder" else None)
    others = [item for item in sys.meta_path if item is PathFinder or item.find_spec("minder", None) is None]  # but for a real install
    monkeypatch.chdir(root)
    monkeypatch.setattr(sys, "path", ["", *(item for item in sys.path[1:] if item != str(root))])
    monkeypatch.setattr(sys, "meta_path", [*others, finder])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert child_python_path() == ({} if mapped else {"PYTHONPATH": str(root)})


@pytest.mark.root
def test_low_priority_is_taken_back(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can raise a priority again")
    spawned = spawn.spawn_worker(_settings(tmp_path), tmp_path / "page", tmp_path / "log", True)
    low = os.getpriority(os.PRIO_PROCESS, spawned.process.pid)
    spawn.restore_priority(spawned.process.pid)
    back = os.getpriority(os.PRIO_PROCESS, spawned.process.pid)
    _end(spawned)
    assert (low, back) == (10, 0)
