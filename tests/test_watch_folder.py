"""Two watches on one host never share a file, and a reader who looks for a job's status finds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minder.app.build import build
from minder.app.watch_folder import open_watch_folder, status_places
from minder.config import JobConfig, MachineConfig
from minder.model.errors import ConfigError
from minder.record.incidents import Ledger


def config(name: str, state_dir: Path | None = None) -> JobConfig:
    machine = MachineConfig(name="m0", agent="http://127.0.0.1:9")
    return JobConfig(name=name, machines=(machine,), state_dir=None if state_dir is None else str(state_dir))


@pytest.mark.parametrize("is_configured", [False, True], ids=["default folder", "one folder for both"])
def test_two_watches_write_two_status_files(is_configured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINDER_STATE_DIR", str(tmp_path))
    apps = [build(config(name, tmp_path if is_configured else None), ledger=Ledger(tmp_path / "ledger.db")) for name in ("a", "b")]
    try:
        for app in apps:
            app.controller.write_status(1.0)
        for app in apps:
            found = [
                json.loads(path.read_text())["job"] for path in status_places(tmp_path / "status.json", app.config.name) if path.exists()
            ]
            assert app.config.name in found
    finally:
        for app in apps:
            app.close()


def test_a_configured_folder_is_used_as_it_is(tmp_path: Path) -> None:
    first = open_watch_folder(config("a", tmp_path))
    assert first.path == tmp_path / "watch"
    assert open_watch_folder(config("a", tmp_path)).path == first.path  # the next leader of the job, while the former still ends
    assert open_watch_folder(config("b", tmp_path)).path == tmp_path / "watch" / "b"
    first.close()
    assert open_watch_folder(config("b", tmp_path)).path == tmp_path / "watch"


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="state_dir"):
        open_watch_folder(config("a", tmp_path / "file"))
