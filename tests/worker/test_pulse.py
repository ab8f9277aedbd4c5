"""A heartbeat reaches its page, and nothing that goes wrong with it reaches the training loop."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from minder.wire.heartbeat import read_heartbeat, was_said

HEAVY = ["numpy", "polars", "pydantic", "torch", "httpx", "asyncio", "typer", "starlette", "uvicorn", "psutil"]


def _run(code: str, **env: str) -> Any:
    """Run code in a fresh process without our variables; what it prints as its last line, decoded."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MINDER_")}
    found = subprocess.run([sys.executable, "-c", code], env={**clean, **env}, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def test_heartbeat_loads_nothing_heavy(tmp_path: Path) -> None:
    code = f"""
import json, sys, minder
minder.heartbeat(step=1, loss=2.0)
with minder.phase("checkpoint"): pass
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
"""
    assert _run(code, MINDER_HEARTBEAT_FILE=str(tmp_path / "page")) == []


def test_steps_and_phases_are_read_back(tmp_path: Path) -> None:
    code = """
import json, minder
for step in range(3): minder.heartbeat(step, loss=0.5 * step, grad_norm=1, colour="blue", samples=8, tokens=4096)
minder.heartbeat(3, tokens="many")
outer = minder.phase("evaluation"); outer.__enter__()
with minder.phase("checkpoint"): pass
print(json.dumps(0))
"""
    page = tmp_path / "page"
    _run(code, MINDER_HEARTBEAT_FILE=str(page), RANK="3", MINDER_GENERATION="2")
    view = read_heartbeat(page)
    assert (view.rank, view.generation, view.phase) == (3, 2, "evaluation")
    assert [(record.step, record.loss, record.grad_norm) for record in view.recent[:3]] == [(0, 0.0, 1.0), (1, 0.5, 1.0), (2, 1.0, 1.0)]
    assert (view.work, view.work_unit) == (3 * 4096.0, "tokens")  # what is no number adds nothing


def test_a_loss_that_is_nan_is_not_one_that_was_not_given(tmp_path: Path) -> None:
    code = """
import json, minder
from minder.edge.worker import pulse
minder.heartbeat(1, loss=float("nan"))
minder.heartbeat(2, grad_norm=float("-nan"))
minder.heartbeat(3, loss="much")
print(json.dumps(0))
"""
    page = tmp_path / "page"
    _run(code, MINDER_HEARTBEAT_FILE=str(page))
    assert [(was_said(record.loss), was_said(record.grad_norm)) for record in read_heartbeat(page).recent] == [
        (True, False), (False, True), (False, False)
    ]  # fmt: skip


def test_lines_of_a_log_count_until_the_script_beats_by_itself(tmp_path: Path) -> None:
    code = """
import json, minder
from minder.edge.worker import pulse
pulse.switch_page(__import__("os").environ["MINDER_HEARTBEAT_FILE"], 0, 1)
pulse.beat_from_log(1, 0.5, None)
pulse.beat_nonfinite(2)
pulse.beat_from_log(2, 0.5, None)
minder.heartbeat(3)
pulse.beat_from_log(4, 0.5, None)
print(json.dumps(pulse.last_step()))
"""
    page = tmp_path / "page"
    assert _run(code, MINDER_HEARTBEAT_FILE=str(page)) == 3
    assert [(record.step, record.flags) for record in read_heartbeat(page).recent] == [(1, 0), (2, 1), (2, 0), (3, 0)]


def test_without_a_file_the_page_is_named_after_the_process(tmp_path: Path) -> None:
    code = """
import json, os, minder
minder.heartbeat(5)
print(json.dumps([os.getpid(), os.listdir(os.environ["MINDER_RUN_DIR"] + "/heartbeats")]))
"""
    pid, names = _run(code, MINDER_RUN_DIR=str(tmp_path))
    assert names == [f"pid-{pid}"]
    assert list((tmp_path / "heartbeats").iterdir()) == []


@pytest.mark.parametrize(
    "start", ["os.fork()", "0 if subprocess.run([sys.executable, '-c', 'import minder; minder.heartbeat(999)']) else 0"]
)
def test_children_keep_off_their_parents_page(tmp_path: Path, start: str) -> None:
    code = f"""
import json, os, subprocess, sys, minder
minder.heartbeat(1)
child = {start}
if child == 0 and {"fork" in start}:
    minder.heartbeat(999); os._exit(0)
if child: os.waitpid(child, 0)
minder.heartbeat(2)
print(json.dumps(os.getpid()))
"""
    page = tmp_path / "page"
    pid = _run(code, MINDER_HEARTBEAT_FILE=str(page), MINDER_RUN_DIR=str(tmp_path))
    view = read_heartbeat(page)
    assert view.pid == pid and [record.step for record in view.recent] == [1, 2]


@pytest.mark.parametrize("page", ["/proc/no/such/page", "/dev/full", "/sys/page"])
def test_unusable_pages_are_swallowed_and_counted(page: str) -> None:
    code = """
import json, minder
from minder.edge.worker import pulse
for step in range(3): minder.heartbeat(step)
print(json.dumps(pulse.swallowed()))
"""
    assert _run(code, MINDER_HEARTBEAT_FILE=page) == 3


@pytest.mark.root
def test_full_disk_is_swallowed(tmp_path: Path) -> None:
    """A full tmpfs: writing through the mapping would raise SIGBUS if the blocks were not reserved first."""
    folder = tmp_path / "full"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "minder-test", str(folder)], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("cannot mount here")
    try:
        with pytest.raises(OSError), (folder / "ballast").open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        code = "import json, minder; minder.heartbeat(1); from minder.edge.worker import pulse; print(json.dumps(pulse.swallowed()))"
        assert _run(code, MINDER_HEARTBEAT_FILE=str(folder / "page")) == 1
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_wrong_types_never_raise(tmp_path: Path) -> None:
    code = """
import json, minder
from minder.edge.worker import pulse
class Device: type = "cuda"
class Tensor:
    device = Device()
    def __float__(self): raise AssertionError("waited for the device")
class OwnError(Exception): pass
class Step:
    def __int__(self): raise OwnError("no step yet")
minder.heartbeat(Step())
minder.heartbeat("seven")
minder.heartbeat(None)
minder.heartbeat(2**80)
minder.heartbeat(1, loss="much", grad_norm=[1])
minder.heartbeat(2, loss=Tensor())
minder.heartbeat(3, loss=float("nan"))
print(json.dumps(pulse.swallowed()))
"""
    page = tmp_path / "page"
    assert _run(code, MINDER_HEARTBEAT_FILE=str(page)) == 4
    recent = read_heartbeat(page).recent
    assert [record.step for record in recent] == [1, 2, 3] and all(math.isnan(record.loss) for record in recent)
