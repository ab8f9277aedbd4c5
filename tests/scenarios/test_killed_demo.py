"""A demo that was killed with -9 leaves nothing behind once `minder lab clean` has run: no controller, no store, no machine."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minder.simulate.lab.processes import all_pids

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]


def processes_of(folder: Path) -> list[str]:
    """Command lines that name the demo's folder."""
    found = []
    for pid in all_pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if str(folder) in command:
            found.append(command)
    return found


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A store's socket is named elsewhere where its folder's name is too long for one: then it could not be told by it."""
    with tempfile.TemporaryDirectory(prefix="mk") as folder:
        yield Path(folder)


def test_nothing_is_left_of_a_killed_demo_after_lab_clean(short_path: Path) -> None:
    minder = [sys.executable, "-m", "minder"]
    environment = os.environ | {"MINDER_STATE_DIR": str(short_path / "labs")}
    out = short_path / "out"
    demo = subprocess.Popen(
        [*minder, "demo", "--fault", "none", "--out", str(out)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        end_s = time.monotonic() + 120.0
        while not any("store_host" in command for command in processes_of(out)):
            assert time.monotonic() < end_s and demo.poll() is None, processes_of(out)
            time.sleep(0.2)
        assert any("minder run" in command for command in processes_of(out))
    finally:
        demo.kill()
        demo.wait()
    cleaned = subprocess.run([*minder, "lab", "clean"], env=environment, capture_output=True, text=True, check=True)
    assert "removed lab" in cleaned.stdout
    assert processes_of(out) == []
