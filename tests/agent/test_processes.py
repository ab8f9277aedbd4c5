"""What an agent tells of the machine's training processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from minder.edge.agent.processes import describe_processes
from minder.edge.agent.steplog import LoggedSteps, StepLog
from minder.edge.exporters.jobs import JobProcess, JobTable
from minder.wire.heartbeat import HeartbeatPage

RANK = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "run-7", "TORCHELASTIC_RESTART_COUNT": "2"}


def test_a_heartbeat_tells_rank_generation_and_steps(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    page.identify(4, 3)
    page.beat(10, loss=2.5)
    page.beat(11, loss=2.25)
    page.phase("checkpoint")
    (row,) = describe_processes([JobProcess(os.getpid(), "j", heartbeat=str(page.path), device="gpu1")], [], has_gpus=True)
    assert (row["rank"], row["generation"], row["step"], row["first_step"]) == (4, 3, 11, 10)
    assert (row["loss"], row["phase"], row["device"]) == (2.25, "checkpoint", "gpu1")
    page.close()


def test_a_page_that_another_process_left_behind_says_nothing(tmp_path: Path) -> None:
    page = HeartbeatPage(tmp_path / "page")
    page.identify(4, 3)
    page.beat(10)
    (row,) = describe_processes([JobProcess(1, "j", rank=0, heartbeat=str(page.path))], [], has_gpus=False)
    assert (row["rank"], row["step"]) == (0, None)
    page.close()


def test_a_logs_steps_are_the_lowest_ranks_that_has_no_heartbeat(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "log")
    log.steps = LoggedSteps(40, 100.0, 38, 99.0, float("nan"))
    rows = describe_processes([JobProcess(8, "j", rank=3), JobProcess(9, "j", rank=2)], [log], has_gpus=False)
    assert {row["rank"]: (row["step"], row["step_time_s"], row["loss"]) for row in rows} == {3: (None, None, None), 2: (40, 100.0, None)}


def test_the_environment_tells_rank_job_restarts_and_device(tmp_path: Path, bench: Any) -> None:
    child = bench.python("import time; print('here', flush=True); time.sleep(60)", env={**RANK, "CUDA_VISIBLE_DEVICES": "4,6"})
    child.stdout.readline()
    (process,) = JobTable(tmp_path, pids=(child.pid,)).read(0.0)
    assert (process.job, process.rank, process.generation, process.device) == ("run-7", 5, 2, "gpu6")


def test_a_launchers_pid_stands_for_the_ranks_below_it_and_for_those_after_a_restart(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdin is not None and parent.stdout is not None
    try:
        table = JobTable(tmp_path, pids=(parent.pid,))
        first = set(map(int, parent.stdout.readline().split()))
        assert {(process.pid, process.rank) for process in table.read(0.0)} == set(zip(sorted(first), (0, 1), strict=True))
        parent.stdin.write(b"\n")
        parent.stdin.flush()
        again = set(map(int, parent.stdout.readline().split()))
        assert {process.pid for process in table.read(10.0)} == again and not again & first
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()


PARENT = """
import os, subprocess, sys, time
def ranks():
    found = []
    for rank in range(2):
        place = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"}
        found.append(subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], env=place))
        while not open(f"/proc/{found[-1].pid}/environ").read():  # just after exec there is none yet
            time.sleep(0.01)
    print(*[child.pid for child in found], flush=True)
    return found
for generation in range(2):
    children = ranks()
    sys.stdin.readline()
    for child in children:
        child.kill()
        child.wait()
"""


def test_an_agent_answers_with_jobs_and_processes(bench: Any, wait: Callable[..., Any], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.touch()
    child = bench.python("import time; print('here', flush=True); time.sleep(60)", env=RANK)
    child.stdout.readline()
    agent = bench.agent("--pids", str(child.pid), "--log", str(log))
    wait(lambda: agent.signals().get("processes"), "the process")
    with log.open("a") as file:
        file.write(" iteration 12/ 100 | lm loss: 2.5 |\n")
    answer = wait(lambda: [found for found in [agent.signals()] if found["processes"][0]["step"] == 12], "the step")[0]
    assert answer["jobs"] == ["run-7"]
    (row,) = answer["processes"]
    assert (row["job"], row["pid"], row["rank"], row["generation"], row["loss"]) == ("run-7", child.pid, 5, 2, 2.5)
    child.kill()
    exits = wait(lambda: [item for item in agent.signals()["signals"] if item["kind"] == "exit"], "the exit")
    assert [(item["pid"], item["rank"], item["data"]["vanished"]) for item in exits] == [(child.pid, 5, True)]
    assert agent.signals()["processes"] == []
