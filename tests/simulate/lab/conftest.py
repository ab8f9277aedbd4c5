"""Labs for the tests, and the check that none of them leaves anything behind."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minder.simulate.lab.capabilities import find_capabilities
from minder.simulate.lab.cgroup import find_layout
from minder.simulate.lab.lab import Lab
from minder.simulate.lab.machine import LabMachine
from minder.simulate.lab.network import has_program, lab_links, lab_namespaces
from minder.simulate.lab.processes import LAB_VARIABLE, marked_processes


def lab_traces(run_id: str) -> list[str]:
    """Everything on this machine that carries a lab's run id."""
    prefix = f"mdr{run_id}"
    network = (*lab_links(), *lab_namespaces()) if has_program("ip") else ()
    names = [*find_layout().names(prefix), *(name for name in network if name.startswith(prefix))]
    return [*names, *map(str, marked_processes(LAB_VARIABLE, run_id))]


@pytest.fixture
def traces() -> Callable[[str], list[str]]:
    return lab_traces


@pytest.fixture
def make_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lab]]:
    """Labs with their own state folder; after the test no trace of any of them may be left."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the lab needs Linux")
    run_ids: list[str] = []
    original = Lab.__enter__

    def enter(lab: Lab) -> Lab:
        entered = original(lab)
        run_ids.append(lab.run_id)
        return entered

    monkeypatch.setattr(Lab, "__enter__", enter)
    yield lambda machines=2, standbys=0, **options: Lab(
        machines, standbys, root_dir=tmp_path / "lab", state_dir=tmp_path / "state", **options
    )
    assert {run_id: lab_traces(run_id) for run_id in run_ids if lab_traces(run_id)} == {}
    assert list((tmp_path / "state" / "labs").glob("*.json")) == []


@pytest.fixture
def lab(make_lab: Callable[..., Lab]) -> Iterator[Lab]:
    """Two machines made of namespaces and cgroups; skipped where they cannot be had."""
    refused = find_capabilities().refused
    if refused:
        pytest.skip(f"this machine refuses {refused}")
    with make_lab(2, mode="namespaces") as built:
        yield built


@pytest.fixture
def process_lab(make_lab: Callable[..., Lab]) -> Iterator[Lab]:
    with make_lab(2, 1, mode="processes") as built:
        yield built


@pytest.fixture
def start_worker() -> Callable[..., int]:
    """Start a pretended training process and list it as the machine's launcher would. Returns its pid."""

    def start(machine: LabMachine, code: str = "import time; time.sleep(60)", rank: int | None = 0, slot: int = 0) -> int:
        ready = machine.place.directory / f"ready-{slot}"
        child = machine.spawn([sys.executable, "-I", "-S", "-c", f"open({str(ready)!r}, 'w').close()\n{code}"])
        wait_until(ready.exists)
        path = machine.run_dir / "jobs" / "job.json"
        path.parent.mkdir(exist_ok=True)
        content = json.loads(path.read_text()) if path.exists() else {"job": "job", "machine": machine.name, "workers": []}
        content["workers"].append({"slot": slot, "pid": child.pid, "rank": rank, "heartbeat": "", "log": ""})
        path.write_text(json.dumps(content))
        return child.pid

    return start


def wait_until(condition: Callable[[], object], timeout_s: float = 10.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.01)


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[..., None]:
    return wait_until


@pytest.fixture
def is_root() -> bool:
    return os.geteuid() == 0
