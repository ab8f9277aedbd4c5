"""Which steps of a log are the running job's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from minder.edge.agent.options import AgentOptions
from minder.edge.agent.ring import SignalRing
from minder.edge.agent.sampling import Sampler
from minder.edge.exporters.cgroup import Cgroup
from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.reading import Reading


@pytest.fixture
def sleeper() -> Iterator[Callable[[], JobProcess]]:
    """sleeper() -> a process that looks like rank 0 of a job that minder did not start."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> JobProcess:
        started.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env=os.environ))
        return JobProcess(started[-1].pid, "llm", 0)

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_steps_of_before_a_job_was_started_again_are_not_its_own(tmp_path: Path, sleeper: Callable[[], JobProcess]) -> None:
    """Also if nothing of it was left for a while: a scheduler queues it, and its log goes on where it was."""
    path = tmp_path / "log"
    path.touch()
    sampler = Sampler(AgentOptions(machine="m0", run_dir=tmp_path, gpu="off", logs=(path,)), SignalRing())
    (log,) = sampler.logs.steps
    log.poll(0.0)
    sampler._take([sleeper()], 0.0)
    with path.open("a") as file:
        file.write(" iteration 1/ 100 | lm loss: 2.0 |\n iteration 2/ 100 | lm loss: 2.0 |\n")
    log.poll(1.0)
    sampler._take(sampler.processes, 0.0)
    assert log.steps is not None and (log.steps.first_step, log.steps.step) == (1, 2)
    sampler._take([], 0.0)
    sampler._take([sleeper()], 0.0)
    with path.open("a") as file:
        file.write(" iteration 3/ 100 | lm loss: 2.0 |\n")
    log.poll(2.0)
    assert log.steps is not None and (log.steps.first_step, log.steps.first_time_s) == (3, 2.0)


def test_the_agent_reads_the_ports_of_its_rdma_adapters(tmp_path: Path) -> None:
    """A folder laid out as /sys/class/infiniband is; port_*_data counts words of four bytes."""
    counters = tmp_path / "infiniband" / "mlx5_0" / "ports" / "1" / "counters"
    counters.mkdir(parents=True)
    (counters.parent / "state").write_text("4: ACTIVE\n")
    sampler = Sampler(AgentOptions(machine="m0", run_dir=tmp_path, gpu="off", infiniband_root=tmp_path / "infiniband"), SignalRing())
    for words in (1000, 1500):
        (counters / "port_rcv_data").write_text(f"{words}\n")
        (counters / "port_xmit_data").write_text(f"{2 * words}\n")
        reading = sampler.sample()
    assert (reading.counters["rdma_receive_bytes", "mlx5_0"], reading.counters["rdma_transmit_bytes", "mlx5_0"]) == (2000, 4000)
    assert reading.counters["agent_errors", None] == 0


def test_files_in_memory_are_no_processes_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that keeps its checkpoints in /dev/shm makes the machine use more, and no other process has grown."""
    sampler = Sampler(AgentOptions(machine="m0", run_dir=tmp_path, gpu="off"), SignalRing())
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=1000, shared=300))
    assert sampler._used_bytes(Reading(gauges={("memory_usage_ratio", None): 0.5})) == 200
    assert sampler._used_bytes(Reading()) is None
    (tmp_path / "m0").mkdir()
    (tmp_path / "m0" / "memory.stat").write_text("anon 5\nshmem 40\n")
    (tmp_path / "m0" / "memory.max").write_text("100\n")
    sampler._cgroup = Cgroup("m0", tmp_path)
    assert sampler._used_bytes(Reading(gauges={("memory_usage_ratio", None): 0.5})) == 10
