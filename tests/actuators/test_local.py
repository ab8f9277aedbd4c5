"""Taking a machine's workers away, also where nothing of the machine answers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from minder.act.actuators.local import LocalActuator, LocalMachine, kill_locally
from minder.model.clock import FakeClock
from minder.model.decision import Decision
from minder.model.errors import WireError
from minder.model.evidence import Verdict
from minder.model.observation import MachineView, WorkerView


class FakeFleet:
    """Answers of launchers by machine; a WireError is silence."""

    def __init__(self, **answers: Mapping[str, Any] | WireError) -> None:
        self.answers = answers
        self.posted: list[Mapping[str, Mapping[str, Any]]] = []

    def views(self) -> dict[str, MachineView]:
        return {name: MachineView(name, 0.1, 0.1, (WorkerView(0, 1, 0, "running", 4),)) for name in self.answers}

    def launcher_state(self, machine: str) -> Mapping[str, Any]:
        return {"generation": 5}

    def post_workers(self, bodies: Mapping[str, Mapping[str, Any]], timeout_s: float) -> dict[str, Any]:
        self.posted.append(bodies)
        return {machine: self.answers[machine] for machine in bodies}


def evict(*machines: str) -> Decision:
    verdict = Verdict(1.0, "machine", "evict", machines, "stall", 0.9, 0.0)
    return Decision("evict-1", 1.0, "evict", machines, "act", "", verdict)


def actuator(fleet: FakeFleet, **local: LocalMachine) -> LocalActuator:
    return LocalActuator("job", fleet, local, FakeClock())  # type: ignore[arg-type]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """worker(): a registered process that looks like one of ours, in a group of its own with a child."""
    started: list[subprocess.Popen[bytes]] = []

    def start(word: str = "minder.worker", **more: Any) -> subprocess.Popen[bytes]:
        code = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']); time.sleep(600)"
        process = subprocess.Popen([sys.executable, "-c", code, word], start_new_session=True)
        started.append(process)
        (tmp_path / "jobs").mkdir(exist_ok=True)
        workers = [{"slot": slot, "pid": item.pid} for slot, item in enumerate(started)]
        (tmp_path / "jobs/job.json").write_text(json.dumps({"job": "job", "workers": workers, **more}))
        time.sleep(0.3)
        return process

    yield start
    for process in started:
        kill_locally_for_sure(process)


def living_members(group: int) -> list[int]:
    import os

    found = []
    for process in psutil.process_iter(["status"]):
        try:
            if os.getpgid(process.pid) == group and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except ProcessLookupError:
            continue
    return found


def kill_locally_for_sure(process: subprocess.Popen[bytes]) -> None:
    import os
    import signal

    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def test_the_launcher_ends_them_and_the_answer_says_how_to_undo_it() -> None:
    fleet = FakeFleet(m1={"outcome": "done"})
    result = actuator(fleet).execute(evict("m1"))
    assert result.outcome == "done" and "minder machine return m1" in result.undo
    body = fleet.posted[0]["m1"]
    assert (body["desired"], body["generation"], body["operation_id"], body["grace_s"]) == ("ended", 5, "evict-1/end", 0)


def test_done_again_is_the_same_operation() -> None:
    fleet = FakeFleet(m1={"outcome": "already_done"})
    machine = actuator(fleet)
    assert machine.execute(evict("m1")).outcome == machine.execute(evict("m1")).outcome == "done"
    assert fleet.posted[0] == fleet.posted[1]


def test_a_silent_machine_elsewhere_is_ambiguous_never_done() -> None:
    result = actuator(FakeFleet(m1=WireError("no answer within 2 s"))).execute(evict("m1"))
    assert result.outcome == "ambiguous" and "no answer" in result.detail


def test_one_silent_machine_of_two_makes_the_whole_ambiguous() -> None:
    result = actuator(FakeFleet(m1={"outcome": "done"}, m2=WireError("silent"))).execute(evict("m1", "m2"))
    assert result.outcome == "ambiguous"
    assert "m1: its launcher ended" in result.detail and "m2: silent" in result.detail


def test_a_silent_machine_on_this_host_is_ended_with_its_whole_group(tmp_path: Path, worker: Any) -> None:
    process = worker()
    result = actuator(FakeFleet(m1=WireError("silent")), m1=LocalMachine(tmp_path)).execute(evict("m1"))
    assert result.outcome == "done" and "1 processes killed" in result.detail
    assert process.wait(10.0) == -9
    end_s = time.monotonic() + 10.0
    while living_members(process.pid):
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_stopped_process_is_ended_too(tmp_path: Path, worker: Any) -> None:
    process = worker()
    process.send_signal(19)
    assert kill_locally(LocalMachine(tmp_path), "job") == 1
    assert process.wait(10.0) == -9


def test_a_number_that_somebody_else_uses_now_is_left_alone(tmp_path: Path, worker: Any) -> None:
    process = worker("another program")
    assert kill_locally(LocalMachine(tmp_path), "job") == 0
    assert process.poll() is None


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"workers": [{"pid": "x"}]}', '{"workers": 7}'])
def test_where_nothing_is_known_of_its_processes_the_outcome_is_ambiguous(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs/job.json").write_text(content)
    result = actuator(FakeFleet(m1=WireError("silent")), m1=LocalMachine(tmp_path)).execute(evict("m1"))
    assert result.outcome == "ambiguous"


def test_a_machine_whose_workers_are_all_gone_is_done(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/job.json").write_text(json.dumps({"workers": [{"slot": 0, "pid": None}]}))
    assert kill_locally(LocalMachine(tmp_path), "job") == 0
