"""Real processes: busy, sleeping, stopped, gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from minder.edge.exporters.host import TreeExporter
from minder.edge.exporters.job import JobExporter
from minder.edge.exporters.jobs import JobProcess
from minder.edge.exporters.procfs import read_stat, read_tree


@pytest.fixture
def pair() -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    yield spinner, sleeper
    for process in (spinner, sleeper):
        process.kill()
        process.wait()


def _watch(processes: list[JobProcess], looks: int = 10) -> dict[str, float]:
    exporter = JobExporter()
    start_s = time.time()
    exporter.read(processes, start_s, start_s)
    for _ in range(looks):
        time.sleep(0.05)
        exporter.look(time.time())
    gauges = exporter.read(processes, time.time(), start_s).gauges
    exporter.watch([])
    return {name: value for (name, _), value in gauges.items()}


def test_busy_and_waiting_processes_are_told_apart(pair: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]) -> None:
    time.sleep(0.5)  # both have started up
    busy = _watch([JobProcess(pair[0].pid, "j", 0)])
    waiting = _watch([JobProcess(pair[1].pid, "j", 0)])
    assert busy["job_busy_ratio"] > 0.8 > 0.2 > waiting["job_busy_ratio"]
    assert busy["job_cpu_ratio"] > waiting["job_cpu_ratio"]
    assert busy["job_run_delay_ratio"] >= 0
    assert waiting["job_memory_bytes"] > 1e6 and waiting["job_threads"] >= 1


def test_stopped_processes_are_counted_and_are_not_busy(pair: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]) -> None:
    pair[0].send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    found = _watch([JobProcess(process.pid, "j", rank) for rank, process in enumerate(pair)])
    assert (found["processes_stopped"], found["job_processes"]) == (1, 2)
    assert found["job_busy_ratio"] < 0.5


def test_a_dead_process_is_no_process(pair: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]) -> None:
    pair[0].kill()
    time.sleep(0.1)  # a zombie: nobody has waited for it
    assert read_stat(pair[0].pid).state == "Z"  # type: ignore[union-attr]
    assert _watch([JobProcess(pair[0].pid, "j", 0)], looks=1) == {}
    assert _watch([], looks=1) == {}


def test_children_of_ranks_count_too() -> None:
    code = "import subprocess, sys; subprocess.Popen(['sleep', '5']); print('up', flush=True); import time; time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None and parent.stdout.readline()
        assert len(read_tree([parent.pid])) == 2
        assert _watch([JobProcess(parent.pid, "j", 0)], looks=1)["job_processes"] == 2
    finally:
        for pid in reversed(read_tree([parent.pid])):
            os.kill(pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()  # type: ignore[union-attr]


def test_a_machine_that_is_a_process_tree(pair: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]) -> None:
    exporter = TreeExporter(lambda: [pair[0].pid])
    exporter.read(time.time())
    time.sleep(0.5)
    gauges = exporter.read(time.time()).gauges
    cores = os.cpu_count() or 1
    assert 0 < gauges["cpu_usage_ratio", None] <= 1.2 / cores
    assert 0 < gauges["memory_usage_ratio", None] < 0.5
    assert TreeExporter(list).read(time.time()).gauges == {}
