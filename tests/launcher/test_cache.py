"""A launcher's checkpoint cache: it outlives the launcher, is found by the next one, and is started again when it dies."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.edge.cache.client import CacheClient
from minder.edge.cache.members import Kept, Member, Members
from minder.edge.launcher.cache import CacheProcess
from minder.edge.launcher.settings import LaunchSettings, check_settings
from minder.model.errors import BadInputError
from minder.model.private import make_private


@pytest.fixture
def settings(tmp_path: Path) -> LaunchSettings:
    script = tmp_path / "train.py"
    script.touch()
    folder = tmp_path / "memory"
    return LaunchSettings(
        "demo", "m1", "127.0.0.1", 0, 1, (str(script),), tmp_path / "run", tmp_path / "logs", cache_bytes="16M", cache_folder=folder
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Every process that a launcher starts here."""
    made: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def spawn(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        made.append(popen(*arguments, **options))
        return made[-1]

    monkeypatch.setattr("minder.edge.launcher.cache.subprocess.Popen", spawn)
    yield made
    for process in made:
        process.kill()
        process.wait()


def test_one_cache_serves_one_launcher_after_the_other(
    settings: LaunchSettings, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    first = CacheProcess(settings)
    first.ensure()
    socket_path = first.environment["MINDER_CACHE_SOCKET"]
    client = CacheClient(socket_path, patience_s=20.0)
    assert client.hello()["machine"] == "m1"
    first.ensure()
    second = CacheProcess(settings)  # another launcher of this machine and job
    second.ensure()
    assert len(started) == 1
    assert os.getsid(started[0].pid) == started[0].pid  # a signal to the launcher's session spares it
    started[0].send_signal(signal.SIGKILL)
    started[0].wait()
    first.ensure()
    assert client.hello()["machine"] == "m1"
    assert len(started) == 2
    assert "cache listens" in (tmp_path / "logs" / "demo-cache.log").read_text()


def test_a_launcher_says_which_steps_stay_in_memory(settings: LaunchSettings) -> None:
    process = CacheProcess(settings)
    assert process.kept() is None, "no cache was there yet"
    members = Members(make_private(settings.cache_folder or settings.run_dir))
    members.join(Member(0, 1, 2, token="a secret", ring=2))
    assert process.kept() == []
    for step in (4, 5, 6):
        members.commit(Kept(step, 1, update=2, skipped="3"))
    assert [(item["step"], item["update"], item["skipped"]) for item in process.kept() or ()] == [(6, 2, "3"), (5, 2, "3")]
    assert "secret" not in str(process.kept())
    assert CacheProcess(dataclasses.replace(settings, cache_bytes="")).kept() is None


def test_a_launcher_without_a_size_starts_none(settings: LaunchSettings, started: list[subprocess.Popen[bytes]]) -> None:
    without = CacheProcess(dataclasses.replace(settings, cache_bytes=""))
    without.ensure()
    assert started == []
    assert without.environment == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cache_bytes": "lots"}, "give a size such as 64G"),
        ({"cache_bytes": ""}, "go with --cache-bytes"),
        ({"host": "0.0.0.0"}, "give --cache-listen ADDRESS:0"),
        ({"cache_listen": "here"}, "is no address"),
    ],
)
def test_what_cannot_work_is_refused(settings: LaunchSettings, changes: dict[str, Any], message: str) -> None:
    check: Callable[..., object] = check_settings
    with pytest.raises(BadInputError, match=message):
        check(dataclasses.replace(settings, **changes), None)
