"""Real ranks that hang in a gloo collective: they answer, a killed one leaves its last dump, and what they say names the rank."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minder.act.controller.captures import judge_dumps
from minder.edge.agent.dumps import collect_dumps
from minder.edge.exporters.jobs import JobProcess
from minder.model.topology import Parallelism

SCRIPT = Path(__file__).parent / "scripts" / "recorded.py"


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Rank 0 waits in its fifth all-reduce for rank 1, which sleeps."""
    places = [{"RANK": str(rank), "WORLD_SIZE": "2", "MINDER_RUN_DIR": str(tmp_path), "MINDER_JOB": "llm"} for rank in range(2)]
    started = [
        subprocess.Popen([sys.executable, str(SCRIPT), str(tmp_path / "store")], env={**os.environ, **place}, stdout=subprocess.PIPE)
        for place in places
    ]
    try:
        for process in started:
            assert process.stdout is not None and b"stands" in process.stdout.readline()
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


def collect(run_dir: Path, processes: list[subprocess.Popen[bytes]], deadline_s: float) -> dict[int, dict[str, Any]]:
    table = [JobProcess(process.pid, "llm", rank) for rank, process in enumerate(processes) if process.poll() is None]
    return {row["rank"]: row for row in asyncio.run(collect_dumps(run_dir, table, deadline_s))}


@pytest.mark.lab
def test_ranks_that_hang_answer_and_a_killed_one_leaves_its_last_dump(ranks: list[subprocess.Popen[bytes]], tmp_path: Path) -> None:
    def answered() -> dict[int, dict[str, Any]]:
        rows: dict[int, dict[str, Any]] = {}
        ends_s = time.monotonic() + 60.0  # a rank that has written none yet is not waited for
        while time.monotonic() < ends_s:
            rows = collect(tmp_path, ranks, 1.0)
            if all(row.get("answered") for row in rows.values()):
                return rows
            time.sleep(0.1)
        raise AssertionError(rows)

    rows = answered()
    machines = {f"m{rank}": {"time_s": row["time_s"], "_received_s": row["time_s"], "dumps": [row]} for rank, row in rows.items()}
    (suspect,) = judge_dumps(machines, {0: "m0", 1: "m1"}, Parallelism(data=2), 0.0, rows[0]["time_s"])
    assert suspect.machines == ("m1",)
    assert (suspect.evidence[0].observed, suspect.evidence[0].expected) == (4.0, 5.0)

    ranks[1].send_signal(signal.SIGKILL)
    ranks[1].wait()
    last = collect(tmp_path, ranks, 1.0)[1]
    assert (last["pid"], last["answered"], last["format"]) == (ranks[1].pid, False, "fr-pickle")
